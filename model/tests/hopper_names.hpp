// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/sm90/kernel.cuh"
#include "machine/kernels.hpp"

// Names of roles and barriers, and those of the Hopper kernel. Kernels that do not ship are named
// where they are compiled.
namespace openvc::test {

/// Barriers of the same name, one for each stage.
struct Barriers {
  const char* name;
  std::size_t start;  // in shared memory
  int stages;
};

inline std::string find_barrier(std::span<const Barriers> all, std::uint32_t offset) {
  for (const Barriers& barriers : all) {
    const std::size_t stage = (offset - barriers.start) / sizeof(std::uint64_t);
    if (offset < barriers.start || stage >= static_cast<std::size_t>(barriers.stages)) continue;
    return barriers.stages == 1 ? barriers.name
                                : std::string(barriers.name) + "[" + std::to_string(stage) + "]";
  }
  return "no barrier of the kernel";
}

/// Of the rings. Storage starts where dynamic shared memory does: both are at multiples of 1024.
template <class Shared>
std::vector<Barriers> ring_barriers() {
  constexpr cuda::KernelConfig kConfig = Shared::kConfig;
  return {
      {"key_full", offsetof(Shared, key_full), kConfig.key_stages},
      {"key_empty", offsetof(Shared, key_empty), kConfig.key_stages},
      {"value_full", offsetof(Shared, value_full), kConfig.value_stages},
      {"value_empty", offsetof(Shared, value_empty), kConfig.value_stages},
  };
}

template <class Shared>
std::vector<Barriers> tile_barriers() {
  std::vector<Barriers> all = ring_barriers<Shared>();
  all.push_back({"query_full", offsetof(Shared, query_full), 1});
  all.push_back({"query_empty", offsetof(Shared, query_empty), 1});
  return all;
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

/// `Names` has role(), barrier(), kKernel and kArchitecture.
template <class Names>
void name_kernel(std::string_view name) {
  model::Kernel& kernel = model::kernel(reinterpret_cast<const void*>(Names::kKernel));
  kernel.name = std::string(Names::kArchitecture) + "attention kernel " + std::string(name);
  kernel.names = {Names::role, Names::barrier};
}

}  // namespace openvc::test
