// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>

namespace openvc::io {

// Both file formats store little-endian elements, which this library maps without conversion.
static_assert(std::endian::native == std::endian::little,
              "the tensor file readers need a little-endian machine");

/// The first sizeof(Integer) bytes of `bytes`, which must have that many.
template <std::unsigned_integral Integer>
[[nodiscard]] Integer load_little_endian(std::span<const std::byte> bytes) noexcept {
  Integer value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

template <std::unsigned_integral Integer>
void append_little_endian(std::string& text, Integer value) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  text.append(bytes, sizeof(value));
}

}  // namespace openvc::io
