// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/host/check.hpp"

// Work beside what the caller's streams do.
namespace openvc::cuda {

/// For what frees memory: nobody could handle a failure there. A fault of the device shows up in
/// the next call on it.
inline void ignore(cudaError_t status) {
  if (status != cudaSuccess) (void)cudaGetLastError();
}

/// Allows for a scope what CUDA forbids while some stream is being captured, such as waiting for an
/// event: none of it concerns the capture.
class RelaxedCapture {
 public:
  RelaxedCapture() {
    check(cudaThreadExchangeStreamCaptureMode(&mode_), "relaxing the capture mode");
  }
  ~RelaxedCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// A stream that nobody else uses. What is queued on it goes on after its end.
class OwnStream {
 public:
  OwnStream() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
  }
  ~OwnStream() { ignore(cudaStreamDestroy(stream_)); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace openvc::cuda
