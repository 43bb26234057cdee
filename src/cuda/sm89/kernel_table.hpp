// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

#include "cuda/attention/kernel_table.hpp"

namespace openvc::cuda::sm89 {

/// All kernels of this build, in the order in which a launch tries them.
std::span<const Kernel> kernels();

}  // namespace openvc::cuda::sm89
