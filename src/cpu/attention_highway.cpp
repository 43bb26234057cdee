// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/attention_kernel.hpp"

// Vectors of a scalable instruction set cannot be elements of an array, which the micro-kernel
// needs; such CPUs take the next fixed-size one.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention_highway.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#define OPENVC_CPU_KERNEL_NAME HWY_STR(HWY_NAMESPACE)
#include "cpu/attention_kernel-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace openvc::cpu {
namespace HWY_NAMESPACE {

const AttentionKernel* float_kernel() { return &kernel_of_this_target(); }

}  // namespace HWY_NAMESPACE
}  // namespace openvc::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace openvc::cpu {

HWY_EXPORT(float_kernel);

const AttentionKernel& highway_attention_kernel() { return *HWY_DYNAMIC_DISPATCH(float_kernel)(); }

const AttentionKernel& attention_kernel() {
  const AttentionKernel* kernel = avx512_bf16_attention_kernel();
  return kernel != nullptr ? *kernel : highway_attention_kernel();
}

std::vector<const AttentionKernel*> all_attention_kernels() {
  std::vector<const AttentionKernel*> kernels;
  if (const AttentionKernel* kernel = avx512_bf16_attention_kernel()) kernels.push_back(kernel);
  for (std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    kernels.push_back(&highway_attention_kernel());
  }
  hwy::SetSupportedTargetsForTest(0);
  return kernels;
}

}  // namespace openvc::cpu
#endif  // HWY_ONCE
