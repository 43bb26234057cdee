// SPDX-License-Identifier: BSD-3-Clause
#include "machine/ex2.hpp"

#include <cmath>
#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/half.hpp"

// By how many units of the last place 2^(h / 8) of an H200 differs from the nearest number, a signed
// byte for each binary16 h: the first half of what benchmarks/cuda/ex2_rounding.cu writes.
asm(".pushsection .rodata\n"
    "openvc_model_h200_ex2:\n"
    ".incbin \"" OPENVC_MODEL_EX2_TABLE
    "\"\n"
    ".popsection\n");
extern "C" const std::int8_t openvc_model_h200_ex2[1 << 16];

namespace openvc::model {
namespace {

constexpr float kUnitsPerOctave = 8;  // of the table's arguments

float flushed(float x) {
  const bool is_subnormal = std::fabs(x) < numerics::exp2_int(numerics::kFloatMinNormalExponent);
  return is_subnormal ? std::copysign(0.0f, x) : x;
}

}  // namespace

float ex2(float x) {
  const float nearest = flushed(static_cast<float>(std::exp2(static_cast<double>(flushed(x)))));
  const float units = x * kUnitsPerOctave;
  const std::uint16_t half = numerics::float_to_half(units);
  if (numerics::half_to_float(half) != units) return nearest;  // NaN, too
  const auto difference = static_cast<std::uint32_t>(std::int32_t{openvc_model_h200_ex2[half]});
  return numerics::float_from_bits(numerics::float_bits(nearest) + difference);
}

}  // namespace openvc::model
