// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/attention_kernel.hpp"

// Highway 1.0 has no target with BF16 dot products. This unit compiles the same kernel for its
// AVX-512 target with that one feature added. Target attributes of functions, not compiler options
// of the file, keep inline functions of other headers free of AVX-512.
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))

#define HWY_COMPILE_ONLY_STATIC
#define HWY_BASELINE_TARGETS HWY_AVX3
#include <hwy/highway.h>

#undef HWY_TARGET_STR
#define HWY_TARGET_STR HWY_TARGET_STR_AVX3 ",avx512bf16"
#define OPENVC_CPU_AVX512_BF16
#define OPENVC_CPU_KERNEL_NAME "AVX512_BF16"
#include "cpu/attention_kernel-inl.hpp"

namespace openvc::cpu {

const AttentionKernel* avx512_bf16_attention_kernel() {
  static const bool kSupported =
      (hwy::SupportedTargets() & HWY_AVX3) != 0 && __builtin_cpu_supports("avx512bf16") != 0;
  return kSupported ? &HWY_NAMESPACE::kernel_of_this_target() : nullptr;
}

}  // namespace openvc::cpu

#else

namespace openvc::cpu {

const AttentionKernel* avx512_bf16_attention_kernel() { return nullptr; }

}  // namespace openvc::cpu

#endif
