// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "machine/ex2.hpp"
#include "machine/recorder.hpp"

namespace openvc::cuda::ptx {

inline float ex2_approx(float x) {
  model::count(model::InstructionClass::special);
  return model::ex2(x);
}

}  // namespace openvc::cuda::ptx
