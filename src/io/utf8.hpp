// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace openvc::io {

/// Offset of the first byte that does not belong to well-formed UTF-8, or text.size() if all do.
/// Overlong forms, surrogates and code points above U+10FFFF are not well formed.
[[nodiscard]] std::size_t find_invalid_utf8(std::string_view text) noexcept;

[[nodiscard]] inline bool is_valid_utf8(std::string_view text) noexcept {
  return find_invalid_utf8(text) == text.size();
}

/// Appends `code_point`, which must be a Unicode scalar value.
void append_utf8(std::string& text, std::uint32_t code_point);

}  // namespace openvc::io
