// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cuda/ptx/matrix_descriptor.cuh"
#include "machine/engines.hpp"
#include "machine/machine.hpp"

namespace openvc::cuda::ptx {

inline void wgmma_fence() { model::fence_products(); }
inline void wgmma_commit_group() { model::commit_products(); }
template <int kPending>
void wgmma_wait_group() {
  model::wait_for_products(kPending);
}

/// The model stores sums where the program says, whatever the compiler has in registers.
template <class T, int kCount>
void warpgroup_fence_operand(T (&)[kCount]) {}

/// Undefined is NaN.
template <class T, int kCount>
void warpgroup_undefined_operand(T (&d)[kCount]) {
  std::memset(d, model::kPoison, sizeof(d));
}

inline void wgmma_m64n128k32_f16_ss(std::uint32_t (&d)[32], std::uint64_t a, std::uint64_t b,
                                    bool accumulate) {
  model::multiply({.instruction = "wgmma.m64n128k32.f16",
                   .columns = 128,
                   .sum = model::Product::Sum::binary16,
                   .d = reinterpret_cast<std::byte*>(d),
                   .a = nullptr,
                   .a_descriptor = a,
                   .b_descriptor = b,
                   .accumulate = accumulate});
}

inline void wgmma_m64n136k32_f32_rs(float (&d)[68], const std::uint32_t* a, std::uint64_t b,
                                    bool accumulate) {
  model::multiply({.instruction = "wgmma.m64n136k32.f32",
                   .columns = 136,
                   .sum = model::Product::Sum::binary32,
                   .d = reinterpret_cast<std::byte*>(d),
                   .a = a,
                   .a_descriptor = 0,
                   .b_descriptor = b,
                   .accumulate = accumulate});
}

}  // namespace openvc::cuda::ptx
