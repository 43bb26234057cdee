// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// How wgmma and tcgen05.mma are told where their operands lie: PTX ISA 9.0, 9.7.15.5.1 and
// 9.7.16.4.1. Plain arithmetic, so that a model of the machine decodes what kernels encode
// (docs/machine_model.md).
namespace openvc::cuda::ptx {

/// Swizzle modes of wgmma's matrix descriptor (bits 62-63).
enum class Swizzle : std::uint64_t { bytes_128 = 1, bytes_32 = 3 };

/// The fields that both descriptors share, of a K-major operand tile whose rows are as wide as its
/// swizzle: groups of eight rows follow each other. Address and offsets are in units of 16 bytes.
template <Swizzle kSwizzle>
__device__ __forceinline__ std::uint64_t operand_place(std::uint32_t shared_address) {
  constexpr std::uint64_t kRowBytes = kSwizzle == Swizzle::bytes_128 ? 128 : 32;
  constexpr std::uint64_t kGroupStride = 8 * kRowBytes / 16;  // stride byte offset
  constexpr std::uint64_t kLeadingOffset = 1;                 // unused for swizzled K-major tiles
  return static_cast<std::uint64_t>((shared_address & 0x3FFFFu) >> 4) | kLeadingOffset << 16 |
         kGroupStride << 32;
}

/// Matrix descriptor of wgmma.
template <Swizzle kSwizzle>
__device__ __forceinline__ std::uint64_t matrix_descriptor(std::uint32_t shared_address) {
  return operand_place<kSwizzle>(shared_address) | static_cast<std::uint64_t>(kSwizzle) << 62;
}

/// Matrix descriptor of tcgen05.mma: a constant in bits 46-48, swizzle modes of its own in bits
/// 61-63.
template <Swizzle kSwizzle>
__device__ __forceinline__ std::uint64_t tcgen05_matrix_descriptor(std::uint32_t shared_address) {
  constexpr std::uint64_t kVersion = 1;
  constexpr std::uint64_t kMode = kSwizzle == Swizzle::bytes_128 ? 2 : 6;
  return operand_place<kSwizzle>(shared_address) | kVersion << 46 | kMode << 61;
}

/// Advances a descriptor inside the tile or to another one.
__device__ __forceinline__ std::uint64_t advance_descriptor(std::uint64_t descriptor,
                                                            std::uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

}  // namespace openvc::cuda::ptx
