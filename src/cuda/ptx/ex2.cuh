// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Powers of two. PTX ISA 9.0, 9.7.3, floating point instructions.
namespace openvc::cuda::ptx {

/// ex2.approx (PTX 1.4): 2^x with a relative error below 2^-22; subnormals are flushed. It
/// approximates numerics::exp2_code_units, which counts in code units: the two differ in last bits.
__device__ __forceinline__ float ex2_approx(float x) {
  float d;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(x));
  return d;
}

}  // namespace openvc::cuda::ptx
