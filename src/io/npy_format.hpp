// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string_view>

namespace openvc::io {

// File layout: magic, version (major, minor), header size (u16 in version 1, else u32, little
// endian), header (the text of a Python dictionary), array data.
inline constexpr std::string_view kNpyMagic = "\x93NUMPY";
inline constexpr std::size_t kNpyVersionOffset = kNpyMagic.size();
inline constexpr std::size_t kNpyLengthOffset = kNpyVersionOffset + 2;

}  // namespace openvc::io
