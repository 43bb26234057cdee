// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "machine/canonical_nan.hpp"
#include "machine/recorder.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/half.hpp"

namespace openvc::cuda::ptx {

inline std::uint16_t cvt_rn_satfinite_e4m3x2_f32(float low, float high) {
  model::count(model::InstructionClass::convert);
  return static_cast<std::uint16_t>(numerics::e4m3_encode(low) | numerics::e4m3_encode(high) << 8);
}

inline std::uint32_t pair(std::uint16_t low, std::uint16_t high) {
  return low | static_cast<std::uint32_t>(high) << 16;
}

inline std::uint32_t cvt_rn_f16x2_e4m3x2(std::uint16_t codes) {
  model::count(model::InstructionClass::convert);
  const auto half = [](int code) {
    return model::half_bits(numerics::e4m3_decode(static_cast<std::uint8_t>(code)));
  };
  return pair(half(codes & 0xFF), half(codes >> 8));
}

inline float cvt_f32_f16_low(std::uint32_t halves) {
  model::count(model::InstructionClass::half_add);
  return numerics::half_to_float(static_cast<std::uint16_t>(halves));
}
inline float cvt_f32_f16_high(std::uint32_t halves) {
  model::count(model::InstructionClass::half_add);
  return numerics::half_to_float(static_cast<std::uint16_t>(halves >> 16));
}

inline std::uint32_t cvt_rn_satfinite_f16x2(float low, float high) {
  model::count(model::InstructionClass::convert);
  const auto half = [](float x) {
    return model::half_bits(numerics::saturate(x, numerics::kHalfMax));
  };
  return pair(half(low), half(high));
}
inline std::uint32_t cvt_rn_satfinite_bf16x2(float low, float high) {
  model::count(model::InstructionClass::convert);
  const auto half = [](float x) {
    return model::bfloat16_bits(numerics::saturate(x, numerics::kBfloat16Max));
  };
  return pair(half(low), half(high));
}

}  // namespace openvc::cuda::ptx
