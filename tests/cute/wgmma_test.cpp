// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/synchronize.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/config.hpp"
#include "cute/oracle/oracle.hpp"
#include "cute/random_bytes.hpp"
#include "machine/machine.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/half.hpp"

// Products of the model with the identity give an operand back: from tiles that lie as CuTe says,
// in registers as CuTe says.
namespace openvc::cute_oracle {
namespace {

namespace ptx = cuda::ptx;
using cuda::kStepBytes;
using cuda::kWarpgroupThreads;
using cuda::sm90::kRowsPerBlock;
using cuda::sm90::kRowsPerWarpgroup;
using cuda::sm90::kValueRows;

constexpr std::uint8_t kOne = 0x38;  // of E4M3

/// Rows of E4M3 codes.
struct Matrix {
  int rows;
  int width;
  std::vector<std::uint8_t> codes;

  [[nodiscard]] std::uint8_t at(int row, int column) const { return codes[row * width + column]; }
  [[nodiscard]] float number(int row, int column) const {
    return numerics::e4m3_decode(at(row, column));
  }
};

Matrix random(int rows, int width, std::uint32_t seed) {
  const RandomBytes bytes(rows * width, seed);
  return {rows, width, {bytes.data(), bytes.data() + rows * width}};
}

/// Identities below each other, one a k-step, in the first kStepBytes rows of all blocks.
Matrix identity(int rows, int width, int block_rows) {
  Matrix result{rows, width, std::vector<std::uint8_t>(static_cast<std::size_t>(rows * width))};
  for (int row = 0; row < rows; ++row) {
    if (row % block_rows >= kStepBytes) continue;
    for (int step = 0; step < width / kStepBytes; ++step) {
      result.codes[row * width + step * kStepBytes + row % block_rows] = kOne;
    }
  }
  return result;
}

struct alignas(1024) Shared {
  std::array<std::uint8_t, kRowsPerBlock * numerics::kHeadDim> a;
  alignas(1024) std::array<std::uint8_t, kValueRows * numerics::kKeyBlock> b;
};

/// Sums of a warpgroup: [thread][value].
using Sums = std::vector<std::vector<float>>;

void store(const Matrix& matrix, const Tile& tile, std::uint8_t* target) {
  for (std::size_t i = 0; i < tile.offsets.size(); ++i) target[tile.offsets[i]] = matrix.codes[i];
}

/// A and B as CuTe lays them; the product of a k-step with the rows of A of a warpgroup.
template <ptx::Swizzle kSwizzle>
Sums scores(const Matrix& a, const Matrix& b, int warpgroup, int step) {
  const Tile a_tile = tile(a.rows, a.width);
  const Tile b_tile = tile(b.rows, b.width);
  Sums result(kWarpgroupThreads);
  model::launch({.threads = kWarpgroupThreads}, [&] {
    auto& shared = ptx::static_shared<Shared>();
    if (threadIdx.x == 0) {
      store(a, a_tile, shared.a.data());
      store(b, b_tile, shared.b.data());
      ptx::fence_proxy_async_shared();
    }
    __syncthreads();
    const auto a_start = ptx::shared_address(shared.a.data()) +
                         static_cast<std::uint32_t>(warpgroup * kRowsPerWarpgroup * a.width);
    const auto b_start = ptx::shared_address(shared.b.data());
    std::uint32_t sums[32];
    ptx::warpgroup_undefined_operand(sums);
    ptx::wgmma_fence();
    ptx::wgmma_m64n128k32_f16_ss(
        sums, ptx::advance_descriptor(ptx::matrix_descriptor<kSwizzle>(a_start), step * kStepBytes),
        ptx::advance_descriptor(ptx::matrix_descriptor<kSwizzle>(b_start), step * kStepBytes),
        false);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    for (const std::uint32_t pair : sums) {
      for (const int shift : {0, 16}) {
        result[threadIdx.x].push_back(
            numerics::half_to_float(static_cast<std::uint16_t>(pair >> shift)));
      }
    }
  });
  return result;
}

/// Expects of all sums what `expected(row, column)` says.
template <class Expected>
void expect_sums(const Sums& sums, const Fragment& fragment, const Expected& expected) {
  ASSERT_EQ(sums.size(), fragment.size());
  for (std::size_t thread = 0; thread < sums.size(); ++thread) {
    ASSERT_EQ(sums[thread].size(), fragment[thread].size());
    for (std::size_t i = 0; i < sums[thread].size(); ++i) {
      const auto [row, column] = fragment[thread][i];
      ASSERT_EQ(sums[thread][i], expected(row, column))
          << "value " << i << " of thread " << thread << ", by CuTe row " << row << ", column "
          << column;
    }
  }
}

template <ptx::Swizzle kSwizzle>
void expect_scores(int width) {
  const Fragment fragment = wgmma_f16_n128().sums;
  const Matrix queries = random(kRowsPerBlock, width, 1);
  const Matrix keys = random(numerics::kKeyBlock, width, 2);
  for (int warpgroup = 0; warpgroup < kRowsPerBlock / kRowsPerWarpgroup; ++warpgroup) {
    for (int step = 0; step < width / kStepBytes; ++step) {
      SCOPED_TRACE("rows of " + std::to_string(width) + " bytes, warpgroup " +
                   std::to_string(warpgroup) + ", k-step " + std::to_string(step));
      const int first = step * kStepBytes;
      expect_sums(scores<kSwizzle>(queries, identity(numerics::kKeyBlock, width, kValueRows),
                                   warpgroup, step),
                  fragment, [&](int row, int column) {
                    const int query = warpgroup * kRowsPerWarpgroup + row;
                    return column < kStepBytes ? queries.number(query, first + column) : 0.0f;
                  });
      expect_sums(scores<kSwizzle>(identity(kRowsPerBlock, width, kRowsPerWarpgroup), keys,
                                   warpgroup, step),
                  fragment, [&](int row, int column) {
                    return row < kStepBytes ? keys.number(column, first + row) : 0.0f;
                  });
    }
  }
}

TEST(CuteWgmma, ScoresOfWideTiles) { expect_scores<ptx::Swizzle::bytes_128>(numerics::kHeadDim); }
TEST(CuteWgmma, ScoresOfResidualColumns) { expect_scores<ptx::Swizzle::bytes_32>(kStepBytes); }

/// A as CuTe deals it to registers, B as CuTe lays it.
Sums values(const Matrix& a, const Matrix& b, int step) {
  const Fragment fragment = wgmma_f32_n136().a;
  const Tile b_tile = tile(b.rows, b.width);
  Sums result(kWarpgroupThreads);
  model::launch({.threads = kWarpgroupThreads}, [&] {
    auto& shared = ptx::static_shared<Shared>();
    if (threadIdx.x == 0) {
      store(b, b_tile, shared.b.data());
      ptx::fence_proxy_async_shared();
    }
    __syncthreads();
    std::uint32_t registers[4] = {};
    const std::vector<Element>& elements = fragment[threadIdx.x];
    for (std::size_t i = 0; i < elements.size(); ++i) {
      registers[i / 4] |=
          std::uint32_t{a.at(elements[i].row, step * kStepBytes + elements[i].column)}
          << (8 * (i % 4));
    }
    float sums[68];
    ptx::warpgroup_undefined_operand(sums);
    ptx::wgmma_fence();
    ptx::wgmma_m64n136k32_f32_rs(
        sums, registers,
        ptx::advance_descriptor(
            ptx::matrix_descriptor<ptx::Swizzle::bytes_128>(ptx::shared_address(shared.b.data())),
            step * kStepBytes),
        false);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    result[threadIdx.x].assign(std::begin(sums), std::end(sums));
  });
  return result;
}

TEST(CuteWgmma, ValuesWithProbabilitiesInRegisters) {
  const Fragment fragment = wgmma_f32_n136().sums;
  const Matrix probabilities = random(kRowsPerWarpgroup, numerics::kKeyBlock, 3);
  const Matrix value_rows = random(kValueRows, numerics::kKeyBlock, 4);
  for (int step = 0; step < cuda::kValueSteps; ++step) {
    SCOPED_TRACE("k-step " + std::to_string(step));
    const int first = step * kStepBytes;
    expect_sums(values(probabilities, identity(kValueRows, numerics::kKeyBlock, kValueRows), step),
                fragment, [&](int row, int column) {
                  return column < kStepBytes ? probabilities.number(row, first + column) : 0.0f;
                });
    expect_sums(values(identity(kRowsPerWarpgroup, numerics::kKeyBlock, kRowsPerWarpgroup),
                       value_rows, step),
                fragment, [&](int row, int column) {
                  return row < kStepBytes ? value_rows.number(column, first + row) : 0.0f;
                });
  }
}

}  // namespace
}  // namespace openvc::cute_oracle
