// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// NVIDIA's own E4M3 conversions, as they run on the host. Kept behind functions: cuda_fp8.h brings
// many names, and it exists only where a CUDA toolkit is installed.
namespace openvc::numerics::testing {

bool have_cuda_fp8();

/// __nv_cvt_float_to_fp8 with saturation. Only if have_cuda_fp8().
std::uint8_t cuda_fp8_encode(float x);

/// Value of a finite code. Only if have_cuda_fp8().
float cuda_fp8_decode(std::uint8_t code);

}  // namespace openvc::numerics::testing
