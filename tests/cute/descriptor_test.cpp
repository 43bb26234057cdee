// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/attention/storage.cuh"
#include "cuda/host/tensor_map.hpp"
#include "cuda/ptx/instruction_descriptor.cuh"
#include "cuda/ptx/matrix_descriptor.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/config.hpp"
#include "cute/oracle/oracle.hpp"
#include "cute/random_bytes.hpp"
#include "machine/machine.hpp"
#include "machine/swizzle.hpp"

// Tiles in shared memory and the descriptors that name them.
namespace openvc::cute_oracle {
namespace {

namespace ptx = cuda::ptx;
using cuda::kStepBytes;
using cuda::sm90::kRowsPerWarpgroup;

/// N of P V on Blackwell, where it is a multiple of 16.
constexpr int kBlackwellValueRows = 144;

struct Shape {
  int rows;
  int width;  // bytes, and span of the swizzle
};
constexpr Shape kTiles[] = {{cuda::sm90::kRowsPerBlock, numerics::kHeadDim},
                            {cuda::sm90::kValueRows, numerics::kKeyBlock},
                            {kBlackwellValueRows, numerics::kKeyBlock},
                            {numerics::kKeyBlock, kStepBytes}};

TEST(CuteTile, SwizzleOfEveryByte) {
  for (const auto& [rows, width] : kTiles) {
    const Tile expected = tile(rows, width);
    ASSERT_EQ(expected.offsets.size(), static_cast<std::size_t>(rows * width));
    for (std::uint32_t i = 0; i < expected.offsets.size(); ++i) {
      ASSERT_EQ(model::swizzled(i, static_cast<std::uint32_t>(width)), expected.offsets[i])
          << "row " << i / width << ", byte " << i % width << " of rows of " << width;
    }
  }
}

TEST(CuteTile, CopiesLandWhereProductsLook) {
  struct alignas(cuda::kTileAlignment) Shared {
    std::array<std::uint8_t, kBlackwellValueRows * numerics::kKeyBlock> tile;
    std::uint64_t full;
  };
  for (const auto& [rows, width] : kTiles) {
    const Tile expected = tile(rows, width);
    EXPECT_EQ(expected.swizzle_span, width);
    const RandomBytes source(rows * width, 1);
    const auto row = static_cast<std::uint32_t>(width);
    const auto count = static_cast<std::uint32_t>(rows);
    const CUtensorMap map = cuda::encode_tensor_map(
        {.data = source.data(),
         .shape = {row, count, 1},
         .row_bytes = row,
         .plane_bytes = row * count,
         .box = {row, count}},
        width == 128 ? cuda::TileSwizzle::bytes_128 : cuda::TileSwizzle::bytes_32);
    model::launch({}, [&] {
      auto& shared = ptx::static_shared<Shared>();
      const std::uint32_t full = ptx::shared_address(&shared.full);
      ptx::mbarrier_init(full, 1);
      ptx::fence_mbarrier_init();
      ptx::mbarrier_arrive_expect_tx(full, row * count);
      ptx::cp_async_bulk_tensor_3d(ptx::shared_address(shared.tile.data()), &map, full, 0, 0, 0);
      ptx::mbarrier_wait(full, 0);
      for (int i = 0; i < rows * width; ++i) {
        ASSERT_EQ(shared.tile.at(expected.offsets[i]), source.data()[i])
            << "row " << i / width << ", byte " << i % width << " of rows of " << width;
      }
    });
  }
}

/// Where operands start: some of the multiples of a tile's alignment, up to the last of a block.
template <class Visit>
void for_each_address(const Visit& visit) {
  constexpr std::uint32_t kDistance = 7 * cuda::kTileAlignment;
  for (std::uint32_t address = 0; address < model::kSharedBytes; address += kDistance) {
    visit(address);
  }
}

using Descriptors = std::vector<std::vector<Descriptor>>;

/// `ours` names the first row of an operand; `block_bytes` further for every block of rows,
/// `step_bytes` for every k-step: what main loops give to their products.
void expect_descriptors(const Descriptors& expected, std::uint64_t ours, int block_bytes,
                        int step_bytes, std::string (*fields)(std::uint64_t)) {
  for (std::size_t block = 0; block < expected.size(); ++block) {
    for (std::size_t step = 0; step < expected[block].size(); ++step) {
      const std::uint64_t mine = ptx::advance_descriptor(
          ours, static_cast<std::uint32_t>(block * block_bytes + step * step_bytes));
      ASSERT_EQ(mine, expected[block][step].bits)
          << "rows of block " << block << ", k-step " << step << "\nours: " << fields(mine)
          << "\nCuTe: " << expected[block][step].fields;
    }
  }
}

void expect_shape(const Descriptors& descriptors, std::size_t blocks, std::size_t steps) {
  ASSERT_EQ(descriptors.size(), blocks);
  for (const auto& block : descriptors) ASSERT_EQ(block.size(), steps);
}

template <ptx::Swizzle kSwizzle>
void expect_gmma(Operand operand, std::size_t blocks, int block_bytes, std::size_t steps) {
  for_each_address([&](std::uint32_t address) {
    SCOPED_TRACE("address " + std::to_string(address));
    const Descriptors expected = gmma_descriptors(operand, address);
    expect_shape(expected, blocks, steps);
    expect_descriptors(expected, ptx::matrix_descriptor<kSwizzle>(address), block_bytes, kStepBytes,
                       gmma_fields);
  });
}

TEST(CuteDescriptor, EveryOperandOfHopper) {
  constexpr int kQueryBlocks = cuda::sm90::kConsumerWarpgroups;
  constexpr auto kWide = ptx::Swizzle::bytes_128;
  constexpr auto kNarrow = ptx::Swizzle::bytes_32;
  expect_gmma<kWide>(Operand::queries, kQueryBlocks, kRowsPerWarpgroup * numerics::kHeadDim,
                     cuda::kScoreSteps);
  expect_gmma<kNarrow>(Operand::query_columns, kQueryBlocks, kRowsPerWarpgroup * kStepBytes, 1);
  expect_gmma<kWide>(Operand::keys, 1, 0, cuda::kScoreSteps);
  expect_gmma<kNarrow>(Operand::key_columns, 1, 0, 1);
  expect_gmma<kWide>(Operand::values, 1, 0, cuda::kValueSteps);
}

template <ptx::Swizzle kSwizzle>
void expect_umma(Operand operand, std::size_t steps) {
  for_each_address([&](std::uint32_t address) {
    SCOPED_TRACE("address " + std::to_string(address));
    const Descriptors expected = umma_descriptors(operand, address);
    expect_shape(expected, 1, steps);
    expect_descriptors(expected, ptx::tcgen05_matrix_descriptor<kSwizzle>(address), 0, kStepBytes,
                       umma_fields);
  });
}

TEST(CuteDescriptor, EveryOperandOfBlackwell) {
  expect_umma<ptx::Swizzle::bytes_128>(Operand::queries, cuda::kScoreSteps);
  expect_umma<ptx::Swizzle::bytes_32>(Operand::query_columns, 1);
  expect_umma<ptx::Swizzle::bytes_128>(Operand::keys, cuda::kScoreSteps);
  expect_umma<ptx::Swizzle::bytes_32>(Operand::key_columns, 1);
  expect_umma<ptx::Swizzle::bytes_128>(Operand::values, cuda::kValueSteps);
}

TEST(CuteDescriptor, InstructionsOfBlackwell) {
  for (const bool binary32 : {false, true}) {
    for (const int columns : {numerics::kKeyBlock, kBlackwellValueRows}) {
      const auto type = binary32 ? ptx::AccumulatorType::binary32 : ptx::AccumulatorType::binary16;
      const std::uint32_t ours = ptx::instruction_descriptor(type, 128, columns);
      const std::uint32_t expected = umma_instruction({binary32, columns});
      EXPECT_EQ(ours, expected) << "ours: " << umma_instruction_fields(ours)
                                << "\nCuTe: " << umma_instruction_fields(expected);
    }
  }
}

}  // namespace
}  // namespace openvc::cute_oracle
