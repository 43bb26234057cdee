// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace openvc::cuda {

/// What CUDA is on this machine, as far as it shows without creating a context.
struct Environment {
  std::string runtime;  ///< CUDA version of the runtime in this build, "13.0"
  std::string driver;   ///< newest CUDA version that the installed driver serves; empty without one
  std::string driver_package;  ///< version of the driver itself, "580.65.06"; empty if unknown
  std::string problem;         ///< why no device can be used; empty if one can
};

/// Never throws because of the machine.
Environment environment();

}  // namespace openvc::cuda
