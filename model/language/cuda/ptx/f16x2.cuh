// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstdint>

#include "machine/recorder.hpp"
#include "machine/rounding.hpp"
#include "numerics/half.hpp"

// Pairs of binary16 and of bfloat16 numbers. PTX ISA 9.0, 9.7.4 and 9.7.8: a maximum takes the
// number beside a NaN, and -0 is below +0.
namespace openvc::cuda::ptx {

inline constexpr std::uint16_t kPairNan = 0x7FFF;

/// One half of max or min; `to_float` reads the format, `sign` is 1 or -1.
template <class ToFloat>
std::uint16_t extreme(std::uint16_t a, std::uint16_t b, const ToFloat& to_float, float sign) {
  const float x = to_float(a);
  const float y = to_float(b);
  if (std::isnan(x)) return std::isnan(y) ? kPairNan : b;
  if (std::isnan(y)) return a;
  if (x == y) return std::signbit(x) == (sign > 0) ? b : a;  // zeros of both signs
  return sign * x > sign * y ? a : b;
}

template <class ToFloat>
std::uint32_t extremes(std::uint32_t a, std::uint32_t b, const ToFloat& to_float, float sign) {
  const auto half = [&](int shift) -> std::uint32_t {
    return extreme(static_cast<std::uint16_t>(a >> shift), static_cast<std::uint16_t>(b >> shift),
                   to_float, sign);
  };
  return half(0) | half(16) << 16;
}

inline std::uint32_t max_f16x2(std::uint32_t a, std::uint32_t b) {
  model::count(model::InstructionClass::maximum);
  return extremes(a, b, numerics::half_to_float, 1.0f);
}
inline std::uint32_t min_f16x2(std::uint32_t a, std::uint32_t b) {
  return extremes(a, b, numerics::half_to_float, -1.0f);
}
inline std::uint32_t max_bf16x2(std::uint32_t a, std::uint32_t b) {
  return extremes(a, b, numerics::bfloat16_to_float, 1.0f);
}
inline std::uint32_t min_bf16x2(std::uint32_t a, std::uint32_t b) {
  return extremes(a, b, numerics::bfloat16_to_float, -1.0f);
}

/// operation(a, b, c) of both halves, in binary64: what it cannot hold of a * b + c is too small to
/// matter for a rounding to binary16.
template <class Operation>
std::uint32_t halves(std::uint32_t a, std::uint32_t b, std::uint32_t c,
                     const Operation& operation) {
  const auto half = [&](int shift) -> std::uint32_t {
    const auto number = [shift](std::uint32_t pair) -> double {
      return numerics::half_to_float(static_cast<std::uint16_t>(pair >> shift));
    };
    const double d = operation(number(a), number(b), number(c));
    return std::isnan(d) ? kPairNan : model::double_to_half(d);
  };
  return half(0) | half(16) << 16;
}

inline std::uint32_t fma_f16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  model::count(model::InstructionClass::half);
  return halves(a, b, c, [](double x, double y, double z) { return x * y + z; });
}
inline std::uint32_t fma_relu_f16x2(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  model::count(model::InstructionClass::half);
  return halves(a, b, c, [](double x, double y, double z) {
    const double d = x * y + z;
    return d <= 0.0 ? 0.0 : d;
  });
}
inline std::uint32_t sub_f16x2(std::uint32_t a, std::uint32_t b) {
  model::count(model::InstructionClass::half_add);
  return halves(a, b, 0, [](double x, double y, double) { return x - y; });
}

}  // namespace openvc::cuda::ptx
