// SPDX-License-Identifier: BSD-3-Clause
#include "kernel_names.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/sm100/configurations.hpp"
#include "cuda/sm100/kernel.cuh"
#include "cuda/sm89/configurations.hpp"
#include "cuda/sm89/kernel.cuh"
#include "cuda/sm90/configurations.hpp"
#include "hopper_names.hpp"

// Compiled where launchers are.
namespace openvc::cuda::sm89 {
extern template void attention_kernel<Dense>(Parameters);
extern template void attention_kernel<DenseTwoSteps>(Parameters);
extern template void attention_kernel<DenseFourSteps>(Parameters);
extern template void attention_kernel<CausalFourSteps>(Parameters);
}  // namespace openvc::cuda::sm89

namespace openvc::cuda::sm90 {
extern template void attention_kernel<Dense>(Parameters);
extern template void attention_kernel<DenseTwoSteps>(Parameters);
extern template void attention_kernel<DenseFourSteps>(Parameters);
extern template void attention_kernel<Causal>(Parameters);
extern template void attention_kernel<CausalFourSteps>(Parameters);
}  // namespace openvc::cuda::sm90

namespace openvc::cuda::sm100 {
extern template void attention_kernel<Dense>(Parameters);
extern template void attention_kernel<DenseTwoSteps>(Parameters);
extern template void attention_kernel<DenseFourSteps>(Parameters);
extern template void attention_kernel<CausalFourSteps>(Parameters);
}  // namespace openvc::cuda::sm100

namespace openvc::test {
namespace {

template <class Config>
struct Blackwell {
  static std::string role(unsigned warp) {
    return role_name(cuda::sm100::warp_role(static_cast<int>(warp)), "multiplier", warp);
  }
  static std::string barrier(std::uint32_t offset) {
    using Shared = cuda::sm100::Storage<Config>;
    std::vector<Barriers> all = tile_barriers<Shared>();
    constexpr int kTiles = cuda::sm100::kQueryTiles;
    constexpr int kParts = kTiles * cuda::sm100::tensor_memory::kPartialParts;
    constexpr int kCodes = cuda::sm100::tensor_memory::kProbabilityParts;
    all.push_back({"score_full", offsetof(Shared, score_full), kTiles});
    all.push_back({"probability_full", offsetof(Shared, probability_full), kTiles * kCodes});
    all.push_back({"partial_full", offsetof(Shared, partial_full), kParts});
    all.push_back({"partial_empty", offsetof(Shared, partial_empty), kParts});
    return find_barrier(all, offset);
  }
  static constexpr auto kKernel = &cuda::sm100::attention_kernel<Config>;
  static constexpr const char* kArchitecture = "Blackwell ";
};

template <class Config>
struct Ada {
  static std::string role(unsigned warp) { return "consumer " + std::to_string(warp); }
  static std::string barrier(std::uint32_t offset) {
    using Shared = cuda::sm89::Storage<Config>;
    return find_barrier(ring_barriers<Shared>(), offset);
  }
  static constexpr auto kKernel = &cuda::sm89::attention_kernel<Config>;
  static constexpr const char* kArchitecture = "Ada ";
};

template <template <class> class Architecture, class... Configs>
void name_kernels(cuda::KernelSet<Configs...>) {
  const auto name = []<class Config>() { name_kernel<Architecture<Config>>(Config::kName); };
  (name.template operator()<Configs>(), ...);
}

}  // namespace

void name_attention_kernels() {
  name_kernels<Ada>(cuda::sm89::kernel_sets::all{});
  name_kernels<Hopper>(cuda::sm90::kernel_sets::all{});
  name_kernels<Blackwell>(cuda::sm100::kernel_sets::all{});
}

}  // namespace openvc::test
