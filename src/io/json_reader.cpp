// SPDX-License-Identifier: BSD-3-Clause
#include "io/json_reader.hpp"

#include <charconv>
#include <limits>

#include "io/file_error.hpp"
#include "io/utf8.hpp"

namespace openvc::io {
namespace {

constexpr unsigned char kFirstPrintable = 0x20;  // JSON strings must escape all below

constexpr bool is_digit(char character) noexcept { return character >= '0' && character <= '9'; }

constexpr bool is_high_surrogate(std::uint32_t unit) noexcept {
  return unit >= 0xd800 && unit < 0xdc00;
}

constexpr bool is_low_surrogate(std::uint32_t unit) noexcept {
  return unit >= 0xdc00 && unit < 0xe000;
}

}  // namespace

std::string JsonReader::read_string() {
  skip_white_space();
  if (at_end() || text_[position_] != '"') refuse("a string");
  ++position_;
  std::string value;
  while (true) {
    const std::size_t run_begin = position_;
    while (!at_end() && text_[position_] != '"' && text_[position_] != '\\' &&
           static_cast<unsigned char>(text_[position_]) >= kFirstPrintable) {
      ++position_;
    }
    value.append(text_.substr(run_begin, position_ - run_begin));
    if (at_end() || static_cast<unsigned char>(text_[position_]) < kFirstPrintable) {
      refuse("the rest of a string");
    }
    if (text_[position_++] == '"') return value;
    append_escape(value);
  }
}

void JsonReader::append_escape(std::string& value) {
  if (at_end()) refuse("the rest of an escape");
  switch (text_[position_]) {
    case '"':
      value += '"';
      break;
    case '\\':
      value += '\\';
      break;
    case '/':
      value += '/';
      break;
    case 'b':
      value += '\b';
      break;
    case 'f':
      value += '\f';
      break;
    case 'n':
      value += '\n';
      break;
    case 'r':
      value += '\r';
      break;
    case 't':
      value += '\t';
      break;
    case 'u': {
      ++position_;
      std::uint32_t code_point = read_code_unit();
      if (is_high_surrogate(code_point)) {
        if (text_.substr(position_, 2) != "\\u") refuse("the second half of a surrogate pair");
        position_ += 2;
        const std::uint32_t low = read_code_unit();
        if (!is_low_surrogate(low)) refuse("a surrogate pair before this position");
        code_point = 0x10000 + ((code_point - 0xd800) << 10) + (low - 0xdc00);
      } else if (is_low_surrogate(code_point)) {
        refuse("no lone surrogate before this position");
      }
      append_utf8(value, code_point);
      return;
    }
    default:
      refuse("one of the escapes of JSON");
  }
  ++position_;
}

std::uint32_t JsonReader::read_code_unit() {
  constexpr std::size_t kDigits = 4;
  const std::string_view digits = text_.substr(position_, kDigits);
  std::uint32_t unit = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), unit, /*base=*/16);
  if (error != std::errc{} || end != digits.data() + kDigits) refuse("four hexadecimal digits");
  position_ += kDigits;
  return unit;
}

std::int64_t JsonReader::read_non_negative_integer() {
  constexpr std::string_view kExpected = "an integer from 0 to 2^63 - 1";
  skip_white_space();
  const std::size_t begin = position_;
  std::size_t end = begin;
  while (end < text_.size() && is_digit(text_[end])) ++end;
  if (end == begin) refuse(kExpected);
  if (text_[begin] == '0' && end > begin + 1) refuse("a number without leading zeros");
  if (end < text_.size() && (text_[end] == '.' || text_[end] == 'e' || text_[end] == 'E')) {
    refuse(kExpected);
  }
  std::int64_t value = 0;
  const auto [_, error] = std::from_chars(text_.data() + begin, text_.data() + end, value);
  if (error != std::errc{}) refuse(kExpected);
  position_ = end;
  return value;
}

void JsonReader::expect_end() {
  skip_white_space();
  if (!at_end()) refuse("nothing after the outermost value");
}

void JsonReader::skip_white_space() noexcept {
  while (!at_end() && (text_[position_] == ' ' || text_[position_] == '\n' ||
                       text_[position_] == '\r' || text_[position_] == '\t')) {
    ++position_;
  }
}

bool JsonReader::consume(char symbol) noexcept {
  skip_white_space();
  if (at_end() || text_[position_] != symbol) return false;
  ++position_;
  return true;
}

void JsonReader::expect(char symbol) {
  if (!consume(symbol)) refuse(std::string{'\'', symbol, '\''});
}

void JsonReader::refuse(std::string_view expected) const {
  constexpr std::size_t kShownBytes = 16;
  const std::string where = " at byte " + std::to_string(position_) + " of the header";
  throw_malformed(path_,
                  at_end() ? "the end of the header text" + where
                           : quote_for_message(text_.substr(position_, kShownBytes)) + where,
                  std::string(expected));
}

void append_json_string(std::string& json, std::string_view text) {
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  json += '"';
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (character == '"' || character == '\\') {
      json += '\\';
      json += character;
    } else if (byte < kFirstPrintable) {
      json += "\\u00";
      json += kHexDigits[byte >> 4];
      json += kHexDigits[byte & 0xf];
    } else {
      json += character;
    }
  }
  json += '"';
}

}  // namespace openvc::io
