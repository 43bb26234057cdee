// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// What tcgen05.mma computes: PTX ISA 9.0, 9.7.16.4.2, table of the instruction descriptor for
// kind::f8f6f4. Plain arithmetic, so that a model of the machine decodes what kernels encode
// (docs/machine_model.md).
namespace openvc::cuda::ptx {

/// Type of D (bits 4 and 5).
enum class AccumulatorType : std::uint32_t { binary16 = 0, binary32 = 1 };

/// D[M, N] of A and B in E4M3 (code 0 in the bits 7 to 12), both K-major (bits 15 and 16 zero),
/// dense, not negated. M is 64 or 128, N a multiple of 8, or of 16 where M is 128.
__device__ constexpr std::uint32_t instruction_descriptor(AccumulatorType type, int m, int n) {
  return static_cast<std::uint32_t>(type) << 4 | static_cast<std::uint32_t>(n / 8) << 17 |
         static_cast<std::uint32_t>(m / 16) << 24;
}

}  // namespace openvc::cuda::ptx
