// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/host/check.hpp"

namespace openvc::cuda {

/// Whether what the stream is given becomes part of a graph. A null stream is that of the current
/// device.
inline bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t result = cudaStreamIsCapturing(stream, &status);
  // The answer of the default stream while a stream that synchronises with it is being captured.
  if (result == cudaErrorStreamCaptureImplicit) {
    (void)cudaGetLastError();
    return true;
  }
  check(result, "asking whether the stream is being captured");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace openvc::cuda
