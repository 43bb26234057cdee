// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "timing/machine_constants.hpp"
#include "timing/trace.hpp"

namespace openvc::timing {

/// Throws TraceError where a trace names what it or the machine does not have.
void validate(const Trace& trace, const MachineConstants& machine);

}  // namespace openvc::timing
