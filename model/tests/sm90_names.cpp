// SPDX-License-Identifier: BSD-3-Clause
#include "sm90_names.hpp"

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/sm90/configurations.hpp"
#include "cuda/sm90/kernel.cuh"
#include "machine/kernels.hpp"

namespace openvc::cuda::sm90 {

// Compiled where launchers are.
extern template void attention_kernel<Dense>(Parameters);
extern template void attention_kernel<DenseTwoSteps>(Parameters);
extern template void attention_kernel<DenseFourSteps>(Parameters);
extern template void attention_kernel<Causal>(Parameters);
extern template void attention_kernel<CausalFourSteps>(Parameters);

}  // namespace openvc::cuda::sm90

namespace openvc::test {
namespace {

using namespace cuda;
using namespace cuda::sm90;

std::string role_name(unsigned warp) {
  switch (warp_role(static_cast<int>(warp))) {
    case WarpRole::key_loader:
      return "key_loader";
    case WarpRole::value_loader:
      return "value_loader";
    case WarpRole::query_loader:
      return "query_loader";
    case WarpRole::idle:
      return "idle";
    case WarpRole::consumer:
      break;
  }
  return "consumer " + std::to_string(warp / kWarpgroupWarps - 1);
}

/// Storage starts where dynamic shared memory does: both are at multiples of 1024.
template <class Config>
std::string barrier_name(std::uint32_t offset) {
  using Shared = Storage<Config>;
  constexpr KernelConfig kConfig = Config::kValue;
  struct Ring {
    const char* name;
    std::size_t start;
    int stages;
  };
  const Ring rings[] = {
      {"query_full", offsetof(Shared, query_full), 1},
      {"query_empty", offsetof(Shared, query_empty), 1},
      {"key_full", offsetof(Shared, key_full), kConfig.key_stages},
      {"key_empty", offsetof(Shared, key_empty), kConfig.key_stages},
      {"value_full", offsetof(Shared, value_full), kConfig.value_stages},
      {"value_empty", offsetof(Shared, value_empty), kConfig.value_stages},
  };
  for (const Ring& ring : rings) {
    const std::size_t stage = (offset - ring.start) / sizeof(std::uint64_t);
    if (offset < ring.start || stage >= static_cast<std::size_t>(ring.stages)) continue;
    return ring.stages == 1 ? ring.name
                            : std::string(ring.name) + "[" + std::to_string(stage) + "]";
  }
  return "no barrier of the kernel";
}

template <class Config>
void name_kernel() {
  model::Kernel& kernel = model::kernel(reinterpret_cast<const void*>(&attention_kernel<Config>));
  kernel.name = std::string("attention kernel ") + std::string(Config::kName);
  kernel.names = {role_name, barrier_name<Config>};
}

template <class... Configs>
void name_kernels(KernelSet<Configs...>) {
  (name_kernel<Configs>(), ...);
}

}  // namespace

void name_sm90_kernels() { name_kernels(kernel_sets::all{}); }

}  // namespace openvc::test
