// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>

#include "machine/engines.hpp"

namespace openvc::model {

// How the tensor core of Hopper adds a k-step of E4M3 products to a sum, as measured on an H200
// (benchmarks/cuda/product_rounding.cu). Products are exact and have the exponent ea + eb of their
// factors, whatever their mantissas' product. With E the largest exponent among the products and
// the old sum, those that are zero apart, every one of these terms is truncated towards zero to a
// multiple of 2^(E - kAlignmentBits) and the sum of all is exact. Binary16 sums are then rounded to
// nearest even, binary32 sums truncated towards zero to kSumBits significant bits.
// NaN is the canonical one.
inline constexpr int kAlignmentBits = 13;
inline constexpr int kSumBits = 14;

/// sums[16][columns] += A[16][32] B[32][columns] by this rule. Sums are numbers of their type, in
/// binary32.
void add_hopper_products(std::span<const std::byte> a, std::span<const std::byte> b,
                         Product::Sum type, std::span<float> sums);

}  // namespace openvc::model
