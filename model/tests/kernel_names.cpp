// SPDX-License-Identifier: BSD-3-Clause
#include "kernel_names.hpp"

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cuda/sm100/configurations.hpp"
#include "cuda/sm100/kernel.cuh"
#include "cuda/sm90/configurations.hpp"
#include "cuda/sm90/kernel.cuh"
#include "machine/kernels.hpp"

// Compiled where launchers are.
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

/// Barriers of the same name, one for each stage.
struct Barriers {
  const char* name;
  std::size_t start;  // in shared memory
  int stages;
};

std::string find_barrier(std::span<const Barriers> all, std::uint32_t offset) {
  for (const Barriers& barriers : all) {
    const std::size_t stage = (offset - barriers.start) / sizeof(std::uint64_t);
    if (offset < barriers.start || stage >= static_cast<std::size_t>(barriers.stages)) continue;
    return barriers.stages == 1 ? barriers.name
                                : std::string(barriers.name) + "[" + std::to_string(stage) + "]";
  }
  return "no barrier of the kernel";
}

/// Storage starts where dynamic shared memory does: both are at multiples of 1024.
template <class Shared>
std::vector<Barriers> tile_barriers() {
  constexpr cuda::KernelConfig kConfig = Shared::kConfig;
  return {
      {"query_full", offsetof(Shared, query_full), 1},
      {"query_empty", offsetof(Shared, query_empty), 1},
      {"key_full", offsetof(Shared, key_full), kConfig.key_stages},
      {"key_empty", offsetof(Shared, key_empty), kConfig.key_stages},
      {"value_full", offsetof(Shared, value_full), kConfig.value_stages},
      {"value_empty", offsetof(Shared, value_empty), kConfig.value_stages},
  };
}

/// Name of one of the first warps, which have a role each; consumers follow.
template <class WarpRole>
std::string role_name(WarpRole role, const char* fourth, unsigned warp) {
  switch (static_cast<int>(role)) {
    case 0:
      return "key_loader";
    case 1:
      return "value_loader";
    case 2:
      return "query_loader";
    case 3:
      return fourth;
    default:
      return "consumer " + std::to_string(warp / cuda::kWarpgroupWarps - 1);
  }
}

template <class Config>
struct Hopper {
  static std::string role(unsigned warp) {
    return role_name(cuda::sm90::warp_role(static_cast<int>(warp)), "idle", warp);
  }
  static std::string barrier(std::uint32_t offset) {
    return find_barrier(tile_barriers<cuda::sm90::Storage<Config>>(), offset);
  }
  static constexpr auto kKernel = &cuda::sm90::attention_kernel<Config>;
  static constexpr const char* kArchitecture = "";
};

template <class Config>
struct Blackwell {
  static std::string role(unsigned warp) {
    return role_name(cuda::sm100::warp_role(static_cast<int>(warp)), "multiplier", warp);
  }
  static std::string barrier(std::uint32_t offset) {
    using Shared = cuda::sm100::Storage<Config>;
    std::vector<Barriers> all = tile_barriers<Shared>();
    constexpr int kTiles = cuda::sm100::kQueryTiles;
    all.push_back({"score_full", offsetof(Shared, score_full), kTiles});
    all.push_back({"score_empty", offsetof(Shared, score_empty), kTiles});
    all.push_back({"probability_full", offsetof(Shared, probability_full), kTiles});
    all.push_back({"partial_full", offsetof(Shared, partial_full), kTiles});
    all.push_back({"partial_empty", offsetof(Shared, partial_empty), kTiles});
    return find_barrier(all, offset);
  }
  static constexpr auto kKernel = &cuda::sm100::attention_kernel<Config>;
  static constexpr const char* kArchitecture = "Blackwell ";
};

template <template <class> class Architecture, class... Configs>
void name_kernels(cuda::KernelSet<Configs...>) {
  const auto name = []<class Config>() {
    using Names = Architecture<Config>;
    model::Kernel& kernel = model::kernel(reinterpret_cast<const void*>(Names::kKernel));
    kernel.name =
        std::string(Names::kArchitecture) + "attention kernel " + std::string(Config::kName);
    kernel.names = {Names::role, Names::barrier};
  };
  (name.template operator()<Configs>(), ...);
}

}  // namespace

void name_attention_kernels() {
  name_kernels<Hopper>(cuda::sm90::kernel_sets::all{});
  name_kernels<Blackwell>(cuda::sm100::kernel_sets::all{});
}

}  // namespace openvc::test
