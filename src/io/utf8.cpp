// SPDX-License-Identifier: BSD-3-Clause
#include "io/utf8.hpp"

namespace openvc::io {
namespace {

struct SequenceForm {
  std::size_t length = 0;  // bytes in all; 0 if the byte cannot start a sequence
  // Range of the second byte. It is narrower than 80..BF where a wider one would let through
  // overlong forms (E0, F0), surrogates (ED) or values above U+10FFFF (F4).
  unsigned char second_min = 0x80;
  unsigned char second_max = 0xbf;
};

constexpr SequenceForm form_of(unsigned char lead) noexcept {
  if (lead < 0x80) return {.length = 1};
  if (lead < 0xc2) return {};
  if (lead < 0xe0) return {.length = 2};
  if (lead == 0xe0) return {.length = 3, .second_min = 0xa0};
  if (lead == 0xed) return {.length = 3, .second_max = 0x9f};
  if (lead < 0xf0) return {.length = 3};
  if (lead == 0xf0) return {.length = 4, .second_min = 0x90};
  if (lead < 0xf4) return {.length = 4};
  if (lead == 0xf4) return {.length = 4, .second_max = 0x8f};
  return {};
}

}  // namespace

std::size_t find_invalid_utf8(std::string_view text) noexcept {
  const auto byte_at = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  std::size_t i = 0;
  while (i < text.size()) {
    const SequenceForm form = form_of(byte_at(i));
    if (form.length == 0 || form.length > text.size() - i) return i;
    if (form.length >= 2 &&
        (byte_at(i + 1) < form.second_min || byte_at(i + 1) > form.second_max)) {
      return i;
    }
    for (std::size_t k = 2; k < form.length; ++k) {
      if ((byte_at(i + k) & 0xc0) != 0x80) return i;
    }
    i += form.length;
  }
  return text.size();
}

void append_utf8(std::string& text, std::uint32_t code_point) {
  const auto append = [&text](std::uint32_t byte) { text += static_cast<char>(byte); };
  const auto append_continuation = [&](int shift) {
    append(0x80 | ((code_point >> shift) & 0x3f));
  };
  if (code_point < 0x80) {
    append(code_point);
  } else if (code_point < 0x800) {
    append(0xc0 | (code_point >> 6));
    append_continuation(0);
  } else if (code_point < 0x10000) {
    append(0xe0 | (code_point >> 12));
    append_continuation(6);
    append_continuation(0);
  } else {
    append(0xf0 | (code_point >> 18));
    append_continuation(12);
    append_continuation(6);
    append_continuation(0);
  }
}

}  // namespace openvc::io
