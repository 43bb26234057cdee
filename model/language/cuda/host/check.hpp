// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

namespace openvc::cuda {

inline void check(cudaError_t, const char*) {}

}  // namespace openvc::cuda
