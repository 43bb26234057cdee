// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Shared memory of a thread block. Kernels get theirs here, so that a model of the machine can give
// every block its own (docs/machine_model.md).
namespace openvc::cuda::ptx {

/// An object of static shared memory: one per kernel and type.
template <class T>
__device__ __forceinline__ T& static_shared() {
  __shared__ T object;
  return object;
}

/// Dynamic shared memory, at a multiple of 256 bytes.
template <class T>
__device__ __forceinline__ T& dynamic_shared() {
  extern __shared__ __align__(256) unsigned char openvc_dynamic_shared[];
  return *reinterpret_cast<T*>(openvc_dynamic_shared);
}

}  // namespace openvc::cuda::ptx
