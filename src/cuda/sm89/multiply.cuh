// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/attention/fragment_softmax.cuh"
#include "cuda/attention/kernel_config.hpp"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/sm89/config.hpp"
#include "cuda/sm89/storage.cuh"

// Products of a warp, one k-step of a tile at a time: mma m16n8k32, A from registers, B by ldmatrix
// from the swizzled tiles of K and V, whose rows are the columns of the product.
namespace openvc::cuda::sm89 {

/// A operand of one k-step.
using Operand = std::uint32_t[4];

/// Reads from a tile whose rows have kRowBytes.
template <int kRowBytes>
struct TileReader {
  std::uint32_t tile;    // address
  std::uint32_t offset;  // of this lane's row of a matrix, in the first 16 rows and the first step

  __device__ explicit TileReader(const std::uint8_t* codes) : tile(ptx::shared_address(codes)) {
    // Matrices of 8 rows and 16 bytes: rows 0 to 7, their next 16 bytes, rows 8 to 15, theirs.
    const std::uint32_t lane = threadIdx.x % kWarpThreads;
    const std::uint32_t row = lane / 16 * 8 + lane % 8;
    offset = swizzled<kRowBytes>(row * kRowBytes + lane / 8 % 2 * 16);
  }

  /// B of one k-step for 16 rows from 16 * `pair` on: two products, two registers each.
  __device__ __forceinline__ void load_pair(Operand& b, int pair, int step) const {
    constexpr int kPairBytes = 16 * kRowBytes;
    static_assert(kPairBytes % (8 * kRowBytes) == 0, "whole periods of the swizzle");
    ptx::ldmatrix_x4(b, tile + static_cast<std::uint32_t>(pair * kPairBytes) +
                            (offset ^ static_cast<std::uint32_t>(step * kStepBytes)));
  }

  /// B of the k-steps `step` and the next for 8 rows from `row` on.
  __device__ __forceinline__ void load_two_steps(Operand& b, int row, int step) const {
    const std::uint32_t lane = threadIdx.x % kWarpThreads;
    const auto start = static_cast<std::uint32_t>(row * kRowBytes + step * kStepBytes);
    ptx::ldmatrix_x4(b, tile + swizzled<kRowBytes>(start + lane % 8 * kRowBytes + lane / 8 * 16));
  }
};

/// scores += A B of one k-step against 128 keys.
template <int kRowBytes>
__device__ __forceinline__ void multiply_scores(Scores& scores, const Operand& a,
                                                const TileReader<kRowBytes>& keys, int step) {
#pragma unroll
  for (int pair = 0; pair < numerics::kKeyBlock / 16; ++pair) {
    Operand b;
    keys.load_pair(b, pair, step);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t* sums = scores + 4 * pair + 2 * half;
      std::uint32_t d[2] = {sums[0], sums[1]};
      ptx::mma_m16n8k32_e4m3(d, a, b[2 * half], b[2 * half + 1]);
      sums[0] = d[0];
      sums[1] = d[1];
    }
  }
}

inline constexpr int kAccumulatorRegisters = kValueRows / 2;
using Sums = float[kAccumulatorRegisters];

/// sums += A B of eight columns; of every four registers, two belong to each row.
__device__ __forceinline__ void multiply_columns(Sums& sums, int first, const std::uint32_t* a,
                                                 std::uint32_t b0, std::uint32_t b1) {
  const Operand operand = {a[0], a[1], a[2], a[3]};
  float d[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) d[i] = sums[first / 2 + i];
  ptx::mma_m16n8k32_e4m3(d, operand, b0, b1);
#pragma unroll
  for (int i = 0; i < 4; ++i) sums[first / 2 + i] = d[i];
}

/// sums = P V of a tile: 128 keys, all channels and the eight columns behind them.
__device__ __forceinline__ void multiply_values(Sums& sums, const Probabilities& probabilities,
                                                const std::uint8_t* codes) {
  const TileReader<numerics::kKeyBlock> values(codes);
  constexpr int kLast = kValueRows - 8;  // of an odd number of products
  static_assert(kLast % 16 == 0 && kValueSteps % 2 == 0);
#pragma unroll
  for (float& sum : sums) sum = 0.0f;
  Operand last;
#pragma unroll
  for (int step = 0; step < kValueSteps; ++step) {
    const std::uint32_t* a = probabilities + 4 * step;
    if (step % 2 == 0) values.load_two_steps(last, kLast, step);
    multiply_columns(sums, kLast, a, last[step % 2 * 2], last[step % 2 * 2 + 1]);
#pragma unroll
    for (int pair = 0; pair < kLast / 16; ++pair) {
      Operand b;
      values.load_pair(b, pair, step);
      multiply_columns(sums, 16 * pair, a, b[0], b[1]);
      multiply_columns(sums, 16 * pair + 8, a, b[2], b[3]);
    }
  }
}

}  // namespace openvc::cuda::sm89
