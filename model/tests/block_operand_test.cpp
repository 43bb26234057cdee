// SPDX-License-Identifier: BSD-3-Clause
#include "block_scene.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "machine/rounding.hpp"

// One product of a block (tcgen05): its values for shapes and swizzles, and what is wrong with its
// operands.
namespace openvc::model {
namespace {

using ptx::AccumulatorType;
using testing::HasSubstr;

constexpr std::uint32_t kSpare = 256;  // columns beside those of D

/// Codes of all numbers below 2^4, without an order.
Operand odd_operand(int rows, int width, unsigned seed) {
  Operand operand(rows, width, seed);
  for (std::uint8_t& code : operand.storage) {
    seed = seed * 1664525u + 1013904223u;
    code = static_cast<std::uint8_t>((seed >> 31 << 7) | (seed >> 16) % 0x58);
  }
  return operand;
}

// ---- values -------------------------------------------------------------------------------------

template <ptx::Swizzle kSwizzle>
void expect_values(AccumulatorType type, int columns, int width) {
  const Operand a = odd_operand(kSceneRows, width, 21);
  const Operand b = odd_operand(columns, width, 22);
  std::vector<std::uint32_t> d(std::size_t{kSceneRows} * columns);
  for (const Schedule& schedule : {kAllSchedules[0], kAllSchedules[3]}) {
    const auto body = [&](const BlockScene& s) {
      for (int k = 0; s.issues && k < width; k += 32) {
        ptx::tcgen05_mma_f8f6f4_ss(s.d, ptx::advance_descriptor(s.a, k),
                                   ptx::advance_descriptor(s.b, k),
                                   ptx::instruction_descriptor(type, kSceneRows, columns), k != 0);
      }
      s.commit_and_wait();
      for (int j = 0; j < columns; j += 8) {
        float values[8];
        ptx::tcgen05_ld_32x32b_x8(values, s.mine + static_cast<std::uint32_t>(j));
        ptx::tcgen05_wait_ld();
        std::memcpy(&d[threadIdx.x * static_cast<std::size_t>(columns) + j], values,
                    sizeof(values));
      }
    };
    ASSERT_EQ((run_block_scene<kSwizzle>(a, b, schedule, body)), "");
    for (int i = 0; i < kSceneRows; ++i) {
      for (int j = 0; j < columns; ++j) {
        std::uint32_t expected = 0;  // rounded after every step
        for (int k = 0; k < width; k += 32) {
          const double exact = a.dot(i, b, j, k, 32);
          if (type == AccumulatorType::binary32) {
            expected = numerics::float_bits(
                static_cast<float>(double{numerics::float_from_bits(expected)} + exact));
          } else {
            const auto old = static_cast<std::uint16_t>(expected);
            expected = 0xFFFF'0000u | double_to_half(double{numerics::half_to_float(old)} + exact);
          }
        }
        ASSERT_EQ(d[static_cast<std::size_t>(i * columns + j)], expected) << i << " " << j;
      }
    }
  }
}

TEST(ModelBlockOperand, Values) {
  expect_values<ptx::Swizzle::bytes_128>(AccumulatorType::binary16, 48, 128);
  expect_values<ptx::Swizzle::bytes_32>(AccumulatorType::binary16, 16, 32);
  expect_values<ptx::Swizzle::bytes_128>(AccumulatorType::binary32, 144, 128);
  expect_values<ptx::Swizzle::bytes_32>(AccumulatorType::binary32, 256, 32);
}

// ---- operands -----------------------------------------------------------------------------------

TEST(ModelBlockOperand, InstructionDescriptors) {
  const auto fault = [](std::uint32_t descriptor) {
    return fault_of_product([descriptor](const BlockScene& s) {
      if (s.issues) ptx::tcgen05_mma_f8f6f4_ss(s.d, s.a, s.b, descriptor, false);
      s.commit_and_wait();
    });
  };
  const auto of_shape = [](int m, int n) {
    return ptx::instruction_descriptor(AccumulatorType::binary32, m, n);
  };
  EXPECT_EQ(fault(kProduct), "");
  EXPECT_THAT(fault(of_shape(64, 32)),
              HasSubstr("tcgen05.mma.ss: instruction descriptor 0x4080010: M (bits 24 to 28, times "
                        "16) is 64; the model knows 128"));
  EXPECT_THAT(fault(of_shape(128, 136)), HasSubstr("N is 136; expected a multiple of 16"));
  EXPECT_THAT(fault(of_shape(128, 272)), HasSubstr("N is 272; expected a multiple of 16 from 16"));
  EXPECT_THAT(fault(of_shape(128, 0)), HasSubstr("N is 0"));
  EXPECT_THAT(fault(kProduct | 1u << 5), HasSubstr("the type of D is 3"));
  EXPECT_THAT(fault(kProduct | 1u << 7), HasSubstr("the type of A (bits 7 to 9) is 1"));
  EXPECT_THAT(fault(kProduct | 5u << 10), HasSubstr("the type of B (bits 10 to 12) is 5"));
  EXPECT_THAT(fault(kProduct | 1u << 14), HasSubstr("negation of A and B"));
  EXPECT_THAT(fault(kProduct | 1u << 16), HasSubstr("transposition of A and B"));
  EXPECT_THAT(fault(kProduct | 1u << 2), HasSubstr("the sparsity"));
  for (const int bit : {3, 6, 23, 29, 31}) {
    EXPECT_THAT(fault(kProduct | 1u << bit), HasSubstr("the model knows 0")) << bit;
  }
}

TEST(ModelBlockOperand, MatrixDescriptors) {
  const auto fault = [](const std::function<std::uint64_t(std::uint64_t)>& change) {
    return fault_of_product([&](const BlockScene& s) {
      if (s.issues) ptx::tcgen05_mma_f8f6f4_ss(s.d, change(s.a), s.b, kProduct, false);
      s.commit_and_wait();
    });
  };
  using Word = std::uint64_t;
  EXPECT_THAT(fault([](Word a) { return a & ~(Word{7} << 46); }),
              HasSubstr("descriptor of A 0x4000004000010040: the constant in the bits 46 to 48"));
  EXPECT_THAT(fault([](Word a) { return (a & ~(Word{7} << 61)) | Word{1} << 61; }),
              HasSubstr("swizzle mode 1; the model knows 2, 4 and 6"));
  EXPECT_THAT(fault([](Word a) { return (a & ~(Word{7} << 61)) | Word{6} << 61; }),
              HasSubstr("a swizzle of 32 bytes, the tile was copied with one of 128"));
  EXPECT_THAT(fault([](Word a) { return a | Word{1} << 52; }),
              HasSubstr("bits that must be zero are not"));
  EXPECT_THAT(fault([](Word a) { return a | Word{1} << 49; }), HasSubstr("a base offset"));
  EXPECT_THAT(
      fault([](Word a) { return a + (Word{64 >> 4} << 32); }),
      HasSubstr("row 8 of A at 0x840: expected row 8, chunk 0 of the tile, found row 8, chunk "
                "4; the stride byte offset of the descriptor is 1088"));
}

TEST(ModelBlockOperand, PlacesInTensorMemory) {
  const auto fault = [](std::uint32_t d, std::uint32_t a, bool accumulate) {
    return fault_of_product([=](const BlockScene& s) {
      if (s.issues) ptx::tcgen05_mma_f8f6f4_ts(s.d + d, s.d + a, s.b, kProduct, accumulate);
      s.commit_and_wait();
    });
  };
  EXPECT_THAT(fault(ptx::kTensorMemoryLane * 32, kSpare, false),
              HasSubstr("tcgen05.mma.ts: D starts at lane 32 of tensor memory; expected 0"));
  EXPECT_THAT(fault(0, kSpare + ptx::kTensorMemoryLane * 64, false),
              HasSubstr("tcgen05.mma.ts: A starts at lane 64"));
  EXPECT_THAT(fault(0, 31, false), HasSubstr("A and D share columns of tensor memory"));
  EXPECT_THAT(fault(0, kSpare, false),
              HasSubstr("reads column 256 of tensor memory, lanes 0 to 31, which nobody has"));
  EXPECT_THAT(fault(496, kSpare, false), HasSubstr("nobody has written"));
  EXPECT_THAT(fault_of_product([](const BlockScene& s) {
                if (s.issues) ptx::tcgen05_mma_f8f6f4_ss(s.d + 496, s.a, s.b, kProduct, false);
              }),
              HasSubstr("tcgen05.mma.ss: columns 496 to 527 of tensor memory are not allocated"));
  EXPECT_THAT(fault_of_product([](const BlockScene& s) {
                if (s.issues) ptx::tcgen05_mma_f8f6f4_ss(s.d, s.a, s.b, kProduct, true);
              }),
              HasSubstr("writes to column 0 of tensor memory, lanes 0 to 31, which nobody has "
                        "written"));
}

}  // namespace
}  // namespace openvc::model
