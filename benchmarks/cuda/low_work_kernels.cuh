// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "cuda/loop_variants.cuh"
#include "cuda/low_work_variants.cuh"
#include "cuda/sm90/configurations.hpp"
#include "cuda/sm90/launch_kernel.cuh"

// Whoever includes this compiles the variants that do not ship, which takes minutes.

// Those that ship are compiled where instantiations/ are.
namespace openvc::cuda::sm90 {
extern template void launch_kernel<Dense>(const Parameters&, const DeviceInfo&, cudaStream_t);
extern template void launch_kernel<DenseTwoSteps>(const Parameters&, const DeviceInfo&,
                                                  cudaStream_t);
extern template void launch_kernel<DenseFourSteps>(const Parameters&, const DeviceInfo&,
                                                   cudaStream_t);
extern template void launch_kernel<Causal>(const Parameters&, const DeviceInfo&, cudaStream_t);
extern template void launch_kernel<CausalFourSteps>(const Parameters&, const DeviceInfo&,
                                                    cudaStream_t);
}  // namespace openvc::cuda::sm90

namespace openvc::low_work {

struct SingleBlock : cuda::sm90::Hopper {
  static constexpr cuda::KernelConfig kValue{.cluster_size = 1};
};
struct SingleBlockTwoStages : cuda::sm90::Hopper {
  static constexpr cuda::KernelConfig kValue{.cluster_size = 1, .key_stages = 2, .value_stages = 2};
};
struct TwoStages : cuda::sm90::Hopper {
  static constexpr cuda::KernelConfig kValue{.key_stages = 2, .value_stages = 2};
};
struct ThreeStages : cuda::sm90::Hopper {
  static constexpr cuda::KernelConfig kValue{.key_stages = 3, .value_stages = 3};
};
struct FourStages : cuda::sm90::Hopper {
  static constexpr cuda::KernelConfig kValue{.key_stages = 4, .value_stages = 4};
};

template <class Config>
constexpr Variant variant(const char* name, int extra_steps = 0, bool wide = false,
                          bool equal_keys = false) {
  return {name,
          cuda::sm90::launch_kernel<Config>,
          Config::kValue.cluster_size,
          extra_steps,
          wide,
          Config::kValue.causal,
          equal_keys};
}

std::span<const Variant> variants() {
  static const Variant all[] = {
      variant<cuda::sm90::Dense>("dense"),
      variant<cuda::sm90::Dense>("dense_wide_still", 0, true, true),
      variant<cuda::sm90::Dense>("dense_wide_moving", 0, true),
      variant<FourStages>("four_stages"),
      variant<ThreeStages>("three_stages"),
      variant<TwoStages>("two_stages"),
      variant<TwoStages>("two_stages_wide_still", 0, true, true),
      variant<SingleBlock>("single_block"),
      variant<SingleBlock>("single_block_wide_still", 0, true, true),
      variant<SingleBlockTwoStages>("single_block_two_stages"),
      variant<cuda::sm90::DenseTwoSteps>("two_steps_0", 0),
      variant<cuda::sm90::DenseTwoSteps>("two_steps_1", 1),
      variant<cuda::sm90::DenseTwoSteps>("two_steps_2", 2),
      variant<cuda::sm90::DenseTwoSteps>("two_steps_2_wide_still", 2, true, true),
      variant<cuda::sm90::DenseFourSteps>("four_steps_0", 0),
      variant<cuda::sm90::DenseFourSteps>("four_steps_4", 4),
      variant<cuda::sm90::Causal>("causal"),
      variant<cuda::sm90::CausalFourSteps>("causal_four_steps_4", 4),
      variant<cuda::sm90::OneScoreBuffer>("one_score_buffer"),
  };
  return all;
}

}  // namespace openvc::low_work
