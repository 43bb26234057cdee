// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace openvc::model {

inline constexpr int kProductRows = 16;   // of a warp
inline constexpr int kProductDepth = 32;  // k of a product

/// sums[16][columns] = A[16][32] B[32][columns] of E4M3 codes, exact. Bytes are in rows of k; B has
/// `columns` of them, a multiple of 8.
std::vector<double> exact_products(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace openvc::model
