// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstring>

#include "machine/kernels.hpp"
#include "machine/machine.hpp"

// CUDA's runtime, as far as launching kernels needs it: memory is the host's, work is done at once.
// Names are CUDA's.

using dim3 = openvc::model::Dim3;
using cudaStream_t = void*;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorStreamCaptureImplicit = 906,
};
inline const char* cudaGetErrorName(cudaError_t status) {
  return status == cudaErrorInvalidValue ? "cudaErrorInvalidValue" : "cudaError";
}
inline const char* cudaGetErrorString(cudaError_t) { return "refused by the model"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes,
                                   cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}
inline cudaError_t cudaMemset(void* to, int byte, std::size_t bytes) {
  std::memset(to, byte, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t) {
  return cudaMemset(to, byte, bytes);
}
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone };
inline cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

// ---- kernels ------------------------------------------------------------------------------------

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
struct cudaFuncAttributes {
  int maxDynamicSharedSizeBytes;
};
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute, int bytes) {
  openvc::model::kernel(reinterpret_cast<const void*>(kernel)).dynamic_shared_bytes =
      static_cast<std::size_t>(bytes);
  return cudaSuccess;
}
template <class... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(
      openvc::model::kernel(reinterpret_cast<const void*>(kernel)).dynamic_shared_bytes);
  return cudaSuccess;
}

enum cudaLaunchAttributeID {
  cudaLaunchAttributeClusterDimension,
  cudaLaunchAttributeProgrammaticStreamSerialization,
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    dim3 clusterDim;
    int programmaticStreamSerializationAllowed;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

/// Runs a kernel to its end: what was launched before has ended, so that dependent launches are in
/// order.
template <class... Parameters>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               const std::type_identity_t<Parameters>&... parameters) {
  const openvc::model::Kernel& known = openvc::model::kernel(reinterpret_cast<const void*>(kernel));
  if (config->dynamicSmemBytes > known.dynamic_shared_bytes) return cudaErrorInvalidValue;
  openvc::model::Grid grid{.blocks = config->gridDim.x,
                           .threads = config->blockDim.x,
                           .dynamic_shared_bytes = config->dynamicSmemBytes,
                           .kernel = known.name.c_str(),
                           .names = known.names};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension) {
      grid.cluster_size = attribute.val.clusterDim.x;
    }
  }
  openvc::model::launch(grid, [&] { kernel(parameters...); });
  return cudaSuccess;
}
