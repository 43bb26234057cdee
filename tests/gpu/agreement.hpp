// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "cpu/agreement.hpp"
#include "gpu/attention_pair.hpp"

namespace openvc::test {

using cpu::Bounds;
using cpu::disagreement;
using cpu::kAccumulation;
using cpu::kCodeStepNats;
using cpu::kWithExtraSteps;
using cpu::output_row;
using cpu::squared_norm;

}  // namespace openvc::test
