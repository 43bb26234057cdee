// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>

#include "machine/recorder.hpp"
#include "numerics/bits.hpp"

namespace openvc::cuda::ptx {

/// Rounded to nearest, where the machine may be two units off.
inline float ex2_approx(float x) {
  model::count(model::InstructionClass::special);
  const auto flushed = [](float y) {
    const bool is_subnormal = std::fabs(y) < numerics::exp2_int(numerics::kFloatMinNormalExponent);
    return is_subnormal ? std::copysign(0.0f, y) : y;
  };
  return flushed(static_cast<float>(std::exp2(static_cast<double>(flushed(x)))));
}

}  // namespace openvc::cuda::ptx
