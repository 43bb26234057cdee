// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/ptx/mma.cuh"
#include "numerics/contract.hpp"

// Products of rows with the basis of a head by the tensor cores of a warp.
//
// Where an element of a row stands in the contraction does not matter as long as both operands
// agree. A thread therefore takes elements as they lie in memory: eight neighbouring ones are its
// operands of two products of depth 16, and are one access of 16 bytes. In the same way it is given
// eight neighbouring columns of the result.
namespace openvc::cuda::device {

inline constexpr int kWarpLanes = 32;
inline constexpr int kQuadLanes = 4;
/// Elements of 16 bits that a thread takes at a time, and how often it does in a row.
inline constexpr int kUnitElements = sizeof(uint4) / sizeof(std::uint16_t);
inline constexpr int kRowUnits = numerics::kHeadDim / kUnitElements;
inline constexpr int kThreadUnits = kRowUnits / kQuadLanes;

/// What a thread holds of a row: units quad, quad + 4, ...
using RowPart = std::uint32_t[kThreadUnits][sizeof(uint4) / sizeof(std::uint32_t)];

__device__ __forceinline__ void move_rows(const RowPart (&from)[2], RowPart (&to)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < kThreadUnits; ++i) {
#pragma unroll
      for (int w = 0; w < 4; ++w) to[half][i][w] = from[half][i][w];
    }
  }
}

/// Place of a thread in its warp.
struct QuadLane {
  int group = static_cast<int>(threadIdx.x) % kWarpLanes / kQuadLanes;
  int quad = static_cast<int>(threadIdx.x) % kQuadLanes;
};

/// The matrix, [column of the result][element of a row], in shared memory. Odd columns have the
/// halves of every 128 bytes exchanged: eight threads that read four units of two neighbouring
/// columns meet in no bank.
struct BasisTile {
  alignas(16) uint4 units[numerics::kHeadDim][kRowUnits];

  [[nodiscard]] __device__ __forceinline__ uint4& unit(int column, int unit) {
    return units[column][unit ^ (column % 2 * kQuadLanes)];
  }
  [[nodiscard]] __device__ __forceinline__ const uint4& unit(int column, int unit) const {
    return units[column][unit ^ (column % 2 * kQuadLanes)];
  }
};

/// Fills the tile from a matrix of the same order; all threads of the block. `convert` may change
/// the format of two elements.
template <class Convert>
__device__ __forceinline__ void load_basis(const std::uint16_t* matrix, BasisTile& tile,
                                           const Convert& convert) {
  const auto* source = reinterpret_cast<const uint4*>(matrix);
  for (int i = static_cast<int>(threadIdx.x); i < numerics::kHeadDim * kRowUnits;
       i += static_cast<int>(blockDim.x)) {
    const uint4 unit = source[i];
    tile.unit(i / kRowUnits, i % kRowUnits) =
        make_uint4(convert(unit.x), convert(unit.y), convert(unit.z), convert(unit.w));
  }
}

template <bool kFloat16>
__device__ __forceinline__ void mma(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
  if constexpr (kFloat16) {
    ptx::mma_m16n8k16_f16(sums, a, b0, b1);
  } else {
    ptx::mma_m16n8k16_bf16(sums, a, b0, b1);
  }
}

/// Columns of the result that multiply_rows() computes, of which a thread gets kUnitElements.
inline constexpr int kColumnsAtOnce = kQuadLanes * kUnitElements;

/// Adds columns [first, first + kColumnsAtOnce) of 16 rows times the matrix. A thread holds parts
/// of the rows `group` and `group + 8`; its sums[n] are columns first + 8 quad + 2 n and the next of
/// both.
template <bool kFloat16>
__device__ __forceinline__ void multiply_rows(const RowPart (&rows)[2], const BasisTile& basis,
                                              int first, float (&sums)[4][4]) {
  const QuadLane lane;
  const int column = first + lane.group / 2 * kUnitElements + lane.group % 2;
#pragma unroll
  for (int i = 0; i < kThreadUnits; ++i) {
    const std::uint32_t(&upper)[4] = rows[0][i];
    const std::uint32_t(&lower)[4] = rows[1][i];
    const std::uint32_t near[4] = {upper[0], lower[0], upper[1], lower[1]};
    const std::uint32_t far[4] = {upper[2], lower[2], upper[3], lower[3]};
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const uint4 words = basis.unit(column + 2 * n, kQuadLanes * i + lane.quad);
      mma<kFloat16>(sums[n], near, words.x, words.y);
      mma<kFloat16>(sums[n], far, words.z, words.w);
    }
  }
}

/// Adds 16 columns of the matrix from `first` on times two sets of eight rows, transposed: a thread
/// holds its part of row `group` of each set; its sums[j] are rows 2 quad and the next of set j at
/// column first + group, then at the column 8 further.
template <bool kFloat16>
__device__ __forceinline__ void multiply_columns(const BasisTile& basis, int first,
                                                 const RowPart (&rows)[2], float (&sums)[2][4]) {
  const QuadLane lane;
#pragma unroll
  for (int i = 0; i < kThreadUnits; ++i) {
    const uint4 upper = basis.unit(first + lane.group, kQuadLanes * i + lane.quad);
    const uint4 lower = basis.unit(first + lane.group + 8, kQuadLanes * i + lane.quad);
    const std::uint32_t near[4] = {upper.x, lower.x, upper.y, lower.y};
    const std::uint32_t far[4] = {upper.z, lower.z, upper.w, lower.w};
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      mma<kFloat16>(sums[j], near, rows[j][i][0], rows[j][i][1]);
      mma<kFloat16>(sums[j], far, rows[j][i][2], rows[j][i][3]);
    }
  }
}

}  // namespace openvc::cuda::device
