// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace openvc::io {

/// Reads JSON text whose structure the caller knows, one value at a time, without recursion.
///
/// Because the caller asks for each value by its kind, text of any other structure (deeply nested
/// arrays, say) is refused where it departs from the expected one, whatever its size. Only the
/// strict grammar of RFC 8259 is accepted. Every refusal is a FileError that names the position.
class JsonReader {
 public:
  /// `text` must be valid UTF-8. `text` and `path` must outlive the reader; `path` is for messages.
  JsonReader(std::string_view text, const std::filesystem::path& path) noexcept
      : text_(text), path_(path) {}

  [[nodiscard]] std::string read_string();

  /// A number from 0 to 2^63 - 1 that is written as an integer.
  [[nodiscard]] std::int64_t read_non_negative_integer();

  /// Calls `visit(std::string key)` at each value of an object; `visit` must read that value.
  template <class Visitor>
  void read_object(Visitor&& visit) {
    expect('{');
    if (consume('}')) return;
    do {
      std::string key = read_string();
      expect(':');
      visit(std::move(key));
    } while (consume(','));
    expect('}');
  }

  /// Calls `visit()` at each element of an array; `visit` must read that element.
  template <class Visitor>
  void read_array(Visitor&& visit) {
    expect('[');
    if (consume(']')) return;
    do {
      visit();
    } while (consume(','));
    expect(']');
  }

  /// Refuses anything but white space in the rest of the text.
  void expect_end();

 private:
  [[nodiscard]] bool at_end() const noexcept { return position_ == text_.size(); }
  void skip_white_space() noexcept;
  [[nodiscard]] bool consume(char symbol) noexcept;
  void expect(char symbol);
  void append_escape(std::string& value);
  [[nodiscard]] std::uint32_t read_code_unit();
  [[noreturn]] void refuse(std::string_view expected) const;

  std::string_view text_;
  const std::filesystem::path& path_;
  std::size_t position_ = 0;
};

/// Appends `text`, which must be valid UTF-8, as a JSON string with its quotes.
void append_json_string(std::string& json, std::string_view text);

}  // namespace openvc::io
