// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/device/basis_product.cuh"
#include "cuda/ptx/load.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cute/oracle/oracle.hpp"
#include "machine/machine.hpp"
#include "numerics/half.hpp"

// Products of a warp, and how their operands reach the registers.
namespace openvc::cute_oracle {
namespace {

namespace ptx = cuda::ptx;
using namespace cuda::device;

constexpr int kRows = 16;
constexpr int kColumns = 8;

/// An operand's element, a number that all formats hold and that tells where it is.
int number(int row, int k) { return (row * 5 + k * 3) % 251 - 125; }

/// Registers of a lane of a matrix, from its elements in the format of an instruction.
template <std::size_t kCount, class Encode, class At>
std::array<std::uint32_t, kCount> registers(const std::vector<Element>& elements,
                                            const Encode& encode, const At& at) {
  std::array<std::uint32_t, kCount> result{};
  const std::size_t each = elements.size() / kCount;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const auto bits = static_cast<std::uint32_t>(encode(at(elements[i].row, elements[i].column)));
    result[i / each] |= bits << (32 / each * (i % each));
  }
  return result;
}

/// Products of random operands with identities give the operands back. `Sum`: of the accumulator;
/// `multiply(d, a, b0, b1)`: the instruction.
template <class Sum, class Encode, class Multiply>
void expect_product(const Fragments& fragments, int depth, const Encode& encode,
                    const Multiply& multiply) {
  const auto one_if = [](bool same) { return same ? 1 : 0; };
  // Every window of eight columns of A, then all of B.
  for (int first = 0; first <= depth; first += kColumns) {
    const bool is_of_a = first < depth;
    SCOPED_TRACE(is_of_a ? "A from column " + std::to_string(first) : "B");
    const auto a_at = [&](int m, int k) { return is_of_a ? number(m, k) : one_if(m == k); };
    const auto b_at = [&](int n, int k) { return is_of_a ? one_if(first + n == k) : number(n, k); };
    model::launch({.threads = model::kWarpLanes}, [&] {
      const auto a = registers<4>(fragments.a[threadIdx.x], encode, a_at);
      const auto b = registers<2>(fragments.b[threadIdx.x], encode, b_at);
      const std::uint32_t left[4] = {a[0], a[1], a[2], a[3]};
      Sum sums[4] = {};
      multiply(sums, left, b[0], b[1]);
      for (std::size_t i = 0; i < 4; ++i) {
        const auto [row, column] = fragments.sums[threadIdx.x][i];
        const int expected = is_of_a ? number(row, first + column) : number(column, row);
        ASSERT_EQ(sums[i], static_cast<Sum>(expected))
            << "value " << i << " of lane " << threadIdx.x;
      }
    });
  }
}

TEST(CuteMma, Binary16) {
  expect_product<float>(
      mma_m16n8k16_f16(), 16, [](int x) { return numerics::float_to_half(static_cast<float>(x)); },
      [](auto&... operands) { ptx::mma_m16n8k16_f16(operands...); });
}

TEST(CuteMma, Bfloat16) {
  expect_product<float>(
      mma_m16n8k16_bf16(), 16,
      [](int x) { return numerics::float_bits(static_cast<float>(x)) >> 16; },
      [](auto&... operands) { ptx::mma_m16n8k16_bf16(operands...); });
}

TEST(CuteMma, SignedBytes) {
  expect_product<std::int32_t>(
      mma_m16n8k32_s8(), 32, [](int x) { return static_cast<std::uint8_t>(x); },
      [](auto&... operands) { ptx::mma_m16n8k32_s8(operands...); });
}

TEST(CuteMma, LoadsOfMatrices) {
  const Fragment fragment = ldmatrix_x4();
  constexpr int kRowElements = 8;
  struct alignas(16) Shared {
    std::uint16_t rows[model::kWarpLanes][kRowElements];
  };
  model::launch({.threads = model::kWarpLanes}, [&] {
    auto& shared = ptx::static_shared<Shared>();
    const int lane = model::lane();
    // The row of a lane is anywhere.
    const int place = lane * 5 % model::kWarpLanes;
    for (int i = 0; i < kRowElements; ++i) {
      shared.rows[place][i] = static_cast<std::uint16_t>(lane * kRowElements + i);
    }
    __syncthreads();
    std::uint32_t loaded[4];
    ptx::ldmatrix_x4(loaded, ptx::shared_address(shared.rows[place]));
    const std::vector<Element>& elements = fragment[lane];
    ASSERT_EQ(elements.size(), 8u);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      ASSERT_EQ(static_cast<std::uint16_t>(loaded[i / 2] >> (16 * (i % 2))),
                elements[i].row * kRowElements + elements[i].column)
          << "element " << i << " of lane " << lane;
    }
  });
}

/// Calls check(loaded element, what it must be, whose) for the elements of a lane.
void expect_loaded(const std::uint32_t* loaded, const std::vector<Element>& elements,
                   const auto& row_of, int first_column) {
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const int row = row_of(elements[i].row);
    const int column = first_column + elements[i].column;
    ASSERT_EQ(static_cast<std::uint16_t>(loaded[i / 2] >> (16 * (i % 2))),
              row * numerics::kHeadDim + column)
        << "element " << i << " of thread " << threadIdx.x << ": row " << row << ", column "
        << column;
  }
}

/// left_address() and right_address() of basis_product.cuh: what ldmatrix gives to a lane is its
/// part of the operand, in the order that `multiply` hands on.
TEST(CuteMma, OperandsOfBasisProducts) {
  const Fragments fragments = mma_m16n8k16_bf16();
  model::launch({.threads = kProductThreads}, [&] {
    auto& tile = ptx::static_shared<OperandTile>();
    const auto matrix = [](int row, int unit, int i) {
      return static_cast<unsigned>(row * numerics::kHeadDim + unit * kUnitElements + i);
    };
    for (int i = static_cast<int>(threadIdx.x); i < kProductRows * kRowUnits;
         i += kProductThreads) {
      const int row = i / kRowUnits;
      const int unit = i % kRowUnits;
      const auto pair = [&](int p) {
        return matrix(row, unit, 2 * p) | matrix(row, unit, 2 * p + 1) << 16;
      };
      tile.unit(row, unit) = make_uint4(pair(0), pair(1), pair(2), pair(3));
    }
    __syncthreads();
    const ProductThread thread;
    const auto lane = static_cast<std::size_t>(model::lane());
    std::uint32_t loaded[4];
    for (int k = 0; k < kDepths; ++k) {
      const auto offset = static_cast<std::uint32_t>(k * kDepthBytes);
      for (int m = 0; m < kWarpRows / kRows; ++m) {
        const int first = thread.first_row + kRows * m;
        ptx::ldmatrix_x4(loaded, left_address(tile, first) ^ offset);
        expect_loaded(
            loaded, fragments.a[lane], [&](int row) { return first + row; }, k * kDepth);
      }
      for (int n = 0; n < kWarpColumns / kColumns; n += 2) {
        const auto column_of = [&](int block, int index) {
          return thread.first_column + block / 4 * kGroupColumns + dealt_row(block % 4, index);
        };
        ptx::ldmatrix_x4(loaded, right_address(tile, column_of, n) ^ offset);
        for (int block = 0; block < 2; ++block) {
          expect_loaded(
              loaded + 2 * block, fragments.b[lane],
              [&](int index) { return column_of(n + block, index); }, k * kDepth);
        }
      }
    }
  });
}

/// What RowProducts says of its elements.
TEST(CuteMma, ElementsOfBasisProducts) {
  const Fragment sums = mma_m16n8k16_bf16().sums;
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    for (int n = 0; n < 4; ++n) {
      for (int i = 0; i < 4; ++i) {
        const auto [row, index] = sums[lane][i];
        EXPECT_EQ(row, 8 * (i / 2) + lane / kQuadLanes);
        EXPECT_EQ(dealt_row(n, index), 8 * (lane % kQuadLanes) + 2 * n + i % 2);
      }
    }
  }
}

}  // namespace
}  // namespace openvc::cute_oracle
