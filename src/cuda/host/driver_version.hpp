// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace openvc::cuda {

/// Version of the installed NVIDIA driver, "580.65.06"; empty if unknown.
std::string driver_version();

}  // namespace openvc::cuda
