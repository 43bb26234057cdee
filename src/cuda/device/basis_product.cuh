// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/ptx/load.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "numerics/contract.hpp"

// Products of a tile of rows with the basis of a head by the tensor cores of eight warps.
//
// Which column of the basis is which column of a product is free: a thread is given eight
// neighbouring ones of a row, which it can store together.
namespace openvc::cuda::device {

inline constexpr int kWarpLanes = 32;
inline constexpr int kQuadLanes = 4;
/// Elements of 16 bits that a thread takes at a time, and how many such units a row has.
inline constexpr int kUnitElements = sizeof(uint4) / sizeof(std::uint16_t);
inline constexpr int kRowUnits = numerics::kHeadDim / kUnitElements;

inline constexpr int kProductThreads = 256;
inline constexpr int kProductRows = 128;  // of a tile
/// A warp computes kWarpRows rows times kWarpColumns columns, in blocks of a product.
inline constexpr int kWarpRows = 32;
inline constexpr int kWarpColumns = 64;
inline constexpr int kRowWarps = kProductRows / kWarpRows;
static_assert(kRowWarps * (numerics::kHeadDim / kWarpColumns) * kWarpLanes == kProductThreads);
/// Columns of four blocks, of which a thread gets kUnitElements neighbours.
inline constexpr int kGroupColumns = kQuadLanes * kUnitElements;
inline constexpr int kColumnGroups = kWarpColumns / kGroupColumns;

/// Place of a thread in its warp, and of the warp's part of the product.
struct ProductThread {
  int group = static_cast<int>(threadIdx.x) % kWarpLanes / kQuadLanes;
  int quad = static_cast<int>(threadIdx.x) % kQuadLanes;
  int first_row = static_cast<int>(threadIdx.x) / kWarpLanes % kRowWarps * kWarpRows;
  int first_column = static_cast<int>(threadIdx.x) / kWarpLanes / kRowWarps * kWarpColumns;
};

/// An operand in shared memory: rows of kHeadDim elements of 16 bits. A unit of 16 bytes is moved
/// inside its row, so that the eight rows of a matrix that ldmatrix reads lie in all banks: rows
/// next to each other, those of dealt_row() and those of keys in the order of their slots.
template <int kRows, int kUnits = kRowUnits>
struct OperandTileOf {
  static constexpr int kRowBytes = kUnits * static_cast<int>(sizeof(uint4));
  alignas(kRowBytes) uint4 units[kRows][kUnits];

  /// What a row's units are exclusive-ored with.
  [[nodiscard]] static __device__ __forceinline__ int swizzle(int row) {
    return row % 8 ^ row / 16 % 2 * 2 ^ row / 8 % 2 * 4;
  }
  [[nodiscard]] __device__ __forceinline__ uint4& unit(int row, int unit) {
    return units[row][unit ^ swizzle(row)];
  }
  [[nodiscard]] __device__ __forceinline__ const uint4& unit(int row, int unit) const {
    return units[row][unit ^ swizzle(row)];
  }
  /// Shared address of unit 0 or 1 of a row; the unit 2 k further is at this address ^ 32 k.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t address(int row, int first_unit) const {
    return ptx::shared_address(&unit(row, first_unit));
  }
};
using OperandTile = OperandTileOf<kProductRows>;
static_assert(kProductRows == numerics::kHeadDim, "a basis is a tile as well");
/// Second terms of axes, [axis][channel]: columns of the warps that have the first kWarpColumns.
using SecondTerms = OperandTileOf<kWarpColumns>;
/// Second terms of axes, [channel][axis]: eight units is the least that a swizzled row has.
using SecondTermsByChannel = OperandTileOf<numerics::kHeadDim, 8>;

/// Fills a tile from rows that start `pitch` units apart; all threads. `convert` may change the
/// format of two elements.
template <int kRows, class Convert>
__device__ __forceinline__ void load_basis(const std::uint16_t* matrix, int pitch,
                                           OperandTileOf<kRows>& tile, const Convert& convert) {
  const auto* source = reinterpret_cast<const uint4*>(matrix);
#pragma unroll
  for (int i = 0; i < kRows * kRowUnits / kProductThreads; ++i) {
    const int place = static_cast<int>(threadIdx.x) + i * kProductThreads;
    const uint4 unit = source[place / kRowUnits * pitch + place % kRowUnits];
    tile.unit(place / kRowUnits, place % kRowUnits) =
        make_uint4(convert(unit.x), convert(unit.y), convert(unit.z), convert(unit.w));
  }
}

/// A row and whether it exists, for start_rows().
struct RowSource {
  const void* address;
  bool exists;
};

/// Starts loading a tile, all threads. `source(row)` gives where a row is and whether it exists;
/// others become zeros, as do units at or beyond `units`. Where rows are not `kAligned` to 16 bytes
/// the loads end here.
template <bool kAligned, class Source>
__device__ __forceinline__ void start_rows(const Source& source, int units, OperandTile& tile) {
  constexpr int kRowsAtOnce = kProductThreads / kRowUnits;
  const int unit = static_cast<int>(threadIdx.x) % kRowUnits;
#pragma unroll
  for (int i = 0; i < kProductRows / kRowsAtOnce; ++i) {
    const int row = static_cast<int>(threadIdx.x) / kRowUnits + i * kRowsAtOnce;
    const RowSource place = source(row);
    const bool exists = place.exists && unit < units;
    const auto* elements =
        static_cast<const std::uint16_t*>(place.address) + (exists ? unit * kUnitElements : 0);
    uint4& target = tile.unit(row, unit);
    if constexpr (kAligned) {
      ptx::cp_async_16(ptx::shared_address(&target), elements, exists);
    } else {
      std::uint32_t words[4] = {};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if (!exists) break;
        words[w] = elements[2 * w] | static_cast<std::uint32_t>(elements[2 * w + 1]) << 16;
      }
      target = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
  ptx::cp_async_commit_group();
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

/// Depth of a product.
inline constexpr int kDepth = 16;
inline constexpr int kDepths = numerics::kHeadDim / kDepth;
inline constexpr int kDepthBytes = kDepth * static_cast<int>(sizeof(std::uint16_t));

/// Row of an operand that is column `index` of block n of a product: a thread, which has columns 2
/// quad and the next of every block, gets eight neighbours in four blocks.
[[nodiscard]] __device__ __forceinline__ int dealt_row(int n, int index) {
  return index / 2 * kUnitElements + 2 * n + index % 2;
}

/// Lane l's row and unit of 16 rows as a left operand: row l % 8 of the upper eight, the lower
/// eight, and the same of the second unit.
template <class Tile>
[[nodiscard]] __device__ __forceinline__ std::uint32_t left_address(const Tile& tile,
                                                                    int first_row) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  return tile.address(first_row + lane % 16, lane / 16);
}

/// The same of two blocks of eight columns as a right operand: both units of one, then of the
/// other.
template <class Tile, class RowOf>
[[nodiscard]] __device__ __forceinline__ std::uint32_t right_address(const Tile& tile,
                                                                     const RowOf& row_of, int n) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpLanes;
  return tile.address(row_of(n + lane / 16, lane % 8), lane / 8 % 2);
}

/// Blocks of 16 rows times blocks of 8 columns, from where left_address() and right_address() of a
/// pair of blocks say. There may be sums of more blocks, which stay.
template <bool kFloat16, int kDepthCount, int kRowBlocks, int kColumnPairs, int kAllRowBlocks,
          int kAllColumnBlocks>
__device__ __forceinline__ void multiply(const std::uint32_t (&left)[kRowBlocks],
                                         const std::uint32_t (&right)[kColumnPairs],
                                         float (&sums)[kAllRowBlocks][kAllColumnBlocks][4]) {
  constexpr int kColumnBlocks = 2 * kColumnPairs;
  static_assert(kRowBlocks <= kAllRowBlocks && kColumnBlocks <= kAllColumnBlocks);
#pragma unroll
  for (int k = 0; k < kDepthCount; ++k) {
    const auto offset = static_cast<std::uint32_t>(k * kDepthBytes);
    std::uint32_t rows[kRowBlocks][4];
    std::uint32_t columns[kColumnPairs][4];
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) ptx::ldmatrix_x4(rows[m], left[m] ^ offset);
#pragma unroll
    for (int n = 0; n < kColumnPairs; ++n) ptx::ldmatrix_x4(columns[n], right[n] ^ offset);
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
      for (int n = 0; n < kColumnBlocks; ++n) {
        mma<kFloat16>(sums[m][n], rows[m], columns[n / 2][n % 2 * 2],
                      columns[n / 2][n % 2 * 2 + 1]);
      }
    }
  }
}

/// A thread's part of a warp's rows times the basis. Element [m][4 g + n][2 h + e] is row first_row
/// + 16 m + 8 h + group, column first_column + 32 g + 8 quad + 2 n + e.
using RowProducts = float[kWarpRows / 16][kWarpColumns / 8][4];

/// Adds the product of the first kDepthCount depths with the columns of the first kGroups groups of
/// the warp.
template <bool kFloat16, int kDepthCount = kDepths, int kGroups = kColumnGroups, class Basis>
__device__ __forceinline__ void multiply_rows(const OperandTile& rows, const Basis& basis,
                                              RowProducts& sums) {
  const ProductThread thread;
  constexpr int kPairs = kGroups * kGroupColumns / 16;
  std::uint32_t left[kWarpRows / 16];
  std::uint32_t right[kPairs];
#pragma unroll
  for (int m = 0; m < kWarpRows / 16; ++m) {
    left[m] = left_address(rows, thread.first_row + 16 * m);
  }
  const auto column_of = [&](int n, int index) {
    return thread.first_column + n / 4 * kGroupColumns + dealt_row(n % 4, index);
  };
#pragma unroll
  for (int n = 0; n < kPairs; ++n) right[n] = right_address(basis, column_of, 2 * n);
  multiply<kFloat16, kDepthCount>(left, right, sums);
}

/// The same transposed, with a warp's columns as rows: element [m][n][2 h + e] is column
/// first_column + 16 m + 8 h + group of the row `row_of(n, 2 quad + e)`.
using ColumnProducts = float[kWarpColumns / 16][kWarpRows / 8][4];

/// Adds the product with the first kColumnCount columns of the warp.
template <bool kFloat16, int kColumnCount = kWarpColumns, class Basis, class RowOf>
__device__ __forceinline__ void multiply_columns(const OperandTile& rows, const Basis& basis,
                                                 const RowOf& row_of, ColumnProducts& sums) {
  const ProductThread thread;
  constexpr int kBlocks = kColumnCount / 16;
  static_assert(kColumnCount % 16 == 0);
  std::uint32_t left[kBlocks];
  std::uint32_t right[kWarpRows / 16];
#pragma unroll
  for (int m = 0; m < kBlocks; ++m) {
    left[m] = left_address(basis, thread.first_column + 16 * m);
  }
#pragma unroll
  for (int n = 0; n < kWarpRows / 16; ++n) right[n] = right_address(rows, row_of, 2 * n);
  multiply<kFloat16, kDepths>(left, right, sums);
}

}  // namespace openvc::cuda::device
