// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/e4m3_lanes.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cpu/row_kernels.hpp"
#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "numerics/e4m3.hpp"

namespace openvc::cpu {
namespace {

bool full_tests() {
  const char* value = std::getenv("OPENVC_FULL_TESTS");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

/// All floats, or every 251st and those around each rounding boundary.
template <class Visit>
void for_each_float(const Visit& visit) {
  const std::uint64_t step = full_tests() ? 1 : 251;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += step) {
    visit(static_cast<std::uint32_t>(bits));
  }
  if (full_tests()) return;
  // Boundaries lie where two neighbouring codes meet, on a grid of 2^19 in the bits of normal codes
  // and at multiples of 2^-10 below.
  for (std::uint32_t sign : {0u, numerics::kFloatSignMask}) {
    for (std::uint32_t boundary = 0; boundary < 0x7F80'0000u; boundary += 1u << 19) {
      for (std::uint32_t offset = 0; offset < 5; ++offset) {
        visit(sign | (boundary + offset - 2u));
      }
    }
    for (int i = 0; i <= 16; ++i) {
      const std::uint32_t boundary = numerics::float_bits(static_cast<float>(i) * 0x1p-10f);
      for (std::uint32_t offset = 0; offset < 5; ++offset) {
        visit(sign | ((boundary + offset - 2u) & 0x7FFF'FFFFu));
      }
    }
  }
}

TEST(E4m3Lanes, EncodeEqualsTheContract) {
  std::uint64_t differences = 0;
  for_each_float([&](std::uint32_t bits) {
    const float x = numerics::float_from_bits(bits);
    differences += encode_e4m3_lane(x) != numerics::e4m3_encode(x) ? 1 : 0;
  });
  EXPECT_EQ(differences, 0u);
}

TEST(E4m3Lanes, VectorisedLoopEqualsTheContract) {
  constexpr int kRows = 128;
  constexpr std::size_t kTile = static_cast<std::size_t>(kRows) * numerics::kHeadDim;
  const std::vector<float> ones(numerics::kHeadDim, 1.0f);
  std::vector<float> rows;
  std::vector<std::uint8_t> codes(kTile);
  std::uint64_t differences = 0;
  const auto flush = [&] {
    rows.resize(kTile);
    encode_rows(rows.data(), kRows, ones.data(), codes.data());
    for (std::size_t i = 0; i < kTile; ++i) {
      differences += codes[i] != numerics::e4m3_encode(rows[i]) ? 1 : 0;
    }
    rows.clear();
  };
  for_each_float([&](std::uint32_t bits) {
    rows.push_back(numerics::float_from_bits(bits));
    if (rows.size() == kTile) flush();
  });
  flush();
  EXPECT_EQ(differences, 0u);
}

TEST(E4m3Lanes, DecodeEqualsTheContract) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    EXPECT_EQ(numerics::float_bits(decode_e4m3_lane(code)),
              numerics::float_bits(numerics::e4m3_decode(static_cast<std::uint8_t>(code))))
        << code;
  }
}

}  // namespace
}  // namespace openvc::cpu
