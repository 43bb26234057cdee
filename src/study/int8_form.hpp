// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace openvc::study {

/// A way to round Q and K to INT8.
struct Int8Form {
  std::string_view id;
  std::string_view label;
  std::int64_t query_rows;  ///< rows of Q that share a scale
  std::int64_t key_rows;    ///< rows of K that share a scale
  bool rotated;             ///< by a Hadamard matrix, before rounding
};

/// SageAttention's, and what VC-Attention's description comes to.
inline constexpr std::array<Int8Form, 2> kInt8Forms = {{
    {"per_token", "a scale per token", 1, 1, false},
    {"blocks", "blocks, Hadamard", 64, 128, true},
}};

}  // namespace openvc::study
