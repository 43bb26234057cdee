// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// Products of small matrices by one warp. PTX ISA 9.0, 9.7.15.4, mma. With g = lane / 4 and
// t = lane % 4, a thread holds of A the rows g and g + 8, of B the column g, and of the result the
// rows g and g + 8, columns 2 t and 2 t + 1.
namespace openvc::cuda::ptx {

using MmaA = std::uint32_t[4];  ///< row g, row g + 8, row g (second half of k), row g + 8 (that)
using MmaB = std::uint32_t[2];

/// mma.m16n8k16 of bfloat16 (PTX 7.0, sm_80), binary32 sums.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const MmaA& a, const MmaB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// mma.m16n8k16 of binary16 (PTX 7.0, sm_80), binary32 sums.
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const MmaA& a, const MmaB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// mma.m16n8k32 of signed bytes (PTX 7.0, sm_80), exact.
__device__ __forceinline__ void mma_m16n8k32_s8(std::int32_t (&d)[4], const MmaA& a,
                                                const MmaB& b) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace openvc::cuda::ptx
