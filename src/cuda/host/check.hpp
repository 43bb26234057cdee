// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "openvc/status.hpp"

namespace openvc::cuda {

/// Throws openvc::Error when a CUDA call failed; `what` says what was being attempted. The
/// runtime's sticky last-error state is cleared, so that a refused call does not poison the next
/// one.
inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  const ErrorCode code =
      status == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::device_failure;
  throw Error(code, std::string("CUDA: ") + what + " failed: " + cudaGetErrorName(status) + " (" +
                        cudaGetErrorString(status) + ")");
}

}  // namespace openvc::cuda
