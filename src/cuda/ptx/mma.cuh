// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// Products of one warp, and loads of their operands.
// PTX ISA 9.0, 9.7.14, warp level matrix multiply-accumulate instructions.
namespace openvc::cuda::ptx {

/// mma m16n8k16 of bfloat16 (PTX 7.0, sm_80): d += a b. Lane l holds of A the rows l / 4 and l / 4
/// + 8 (a[0], a[2] and a[1], a[3]), columns 2 (l % 4) and the next, then those 8 further; of B the
/// same rows of k, column l / 4; of D the rows of A, columns 2 (l % 4) and the next.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                                  std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The same of binary16 (PTX 7.0, sm_80).
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const std::uint32_t (&a)[4],
                                                 std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// mma m16n8k32 of signed bytes (PTX 7.0, sm_80), exact; the same rows and columns, four bytes of k
/// to a register.
__device__ __forceinline__ void mma_m16n8k32_s8(std::int32_t (&d)[4], const std::uint32_t (&a)[4],
                                                std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// mma m16n8k32 of E4M3 (PTX 8.4, sm_89), the places of mma_m16n8k32_s8(). An instruction of its
/// own on sm_89 and sm_120; sm_90 and sm_100 compute it from binary16.
__device__ __forceinline__ void mma_m16n8k32_e4m3(float (&d)[4], const std::uint32_t (&a)[4],
                                                  std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The same with sums of binary16 (PTX 8.7): d[0] holds the two columns of row l / 4, d[1] those of
/// row l / 4 + 8.
__device__ __forceinline__ void mma_m16n8k32_e4m3(std::uint32_t (&d)[2],
                                                  const std::uint32_t (&a)[4], std::uint32_t b0,
                                                  std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "
      "{%0, %1};"
      : "+r"(d[0]), "+r"(d[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// ldmatrix.x4 (PTX 6.5, sm_75): four 8 x 8 matrices of 16-bit elements from shared memory; the
/// rows of matrix i start at the addresses of lanes 8 i .. 8 i + 7, multiples of 16 bytes. Lane l
/// gets elements 2 (l % 4) and the next of row l / 4 of each.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&d)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(address)
               : "memory");
}

}  // namespace openvc::cuda::ptx
