// SPDX-License-Identifier: BSD-3-Clause
//
// What the parts of the Hopper kernel's machine take by themselves, in clocks: products of a
// warpgroup, mbarriers, copies. Constants of the clock model (docs/machine_model.md) come from
// here.
//
//   hand_over_latency      one JSON object on stdout
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/synchronize.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace {

using openvc::cuda::check;
namespace ptx = openvc::cuda::ptx;

constexpr int kPasses = 256;
constexpr int kOperandBytes = 64 * 1024;
constexpr int kSteps = 4;  // k-steps of a tile

/// Clocks of a run: all of it, and from the first issue of a pass to the last, summed.
struct Clocks {
  long long all;
  long long issue;
};

/// A pass issues kValues products of m64n136k32 f32 with A in registers, then kScores of m64n128k32
/// f16 from shared memory, as the main loop does; then at most kPending groups may run on.
template <int kValues, int kScores, int kPending>
__global__ void __launch_bounds__(256, 1) time_products(Clocks* clocks, float* sink) {
  auto* shared = &ptx::dynamic_shared<std::uint8_t>();
  for (int i = threadIdx.x; i < kOperandBytes; i += blockDim.x) shared[i] = 0x38;  // 1.0
  ptx::fence_proxy_async_shared();
  __syncthreads();
  const std::uint32_t base = (ptx::shared_address(shared) + 1023u) & ~1023u;
  const auto a = ptx::matrix_descriptor<ptx::Swizzle::bytes_128>(base + threadIdx.x / 128 * 8192);
  const auto b = ptx::matrix_descriptor<ptx::Swizzle::bytes_128>(base + 16384);
  std::uint32_t scores[32] = {};
  std::uint32_t codes[16];
  for (std::uint32_t& code : codes) code = 0x38383838u + threadIdx.x % 2;
  float values[68] = {};
  long long issue = 0;
  const long long begin = clock64();
#pragma unroll 1
  for (int pass = 0; pass < kPasses; ++pass) {
    const long long before = clock64();
    ptx::warpgroup_fence_operand(scores);
    ptx::warpgroup_fence_operand(values);
    ptx::warpgroup_fence_operand(codes);
    ptx::wgmma_fence();
    if constexpr (kValues > 0) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        ptx::wgmma_m64n136k32_f32_rs(values, codes + 4 * (i % kSteps),
                                     ptx::advance_descriptor(b, 32 * (i % kSteps)), i != 0);
      }
      ptx::wgmma_commit_group();
    }
    if constexpr (kScores > 0) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) {
        ptx::wgmma_m64n128k32_f16_ss(scores, ptx::advance_descriptor(a, 32 * (i % kSteps)),
                                     ptx::advance_descriptor(b, 32 * (i % kSteps)), i != 0);
      }
      ptx::wgmma_commit_group();
    }
    issue += clock64() - before;
    ptx::wgmma_wait_group<kPending>();
  }
  ptx::wgmma_wait_group<0>();
  const long long end = clock64();
  ptx::warpgroup_fence_operand(scores);
  ptx::warpgroup_fence_operand(values);
  float sum = 0.0f;
  for (const float x : values) sum += x;
  for (const std::uint32_t x : scores) sum += static_cast<float>(x);
  sink[threadIdx.x] = sum;
  if (threadIdx.x == 0) *clocks = {end - begin, issue};
}

/// One thread arrives at a barrier of its own block and waits for the phase.
__global__ void time_arrival(Clocks* clocks) {
  const std::uint32_t barrier = ptx::shared_address(&ptx::static_shared<std::uint64_t>());
  ptx::mbarrier_init(barrier, 1);
  ptx::fence_mbarrier_init();
  const long long begin = clock64();
  for (int pass = 0; pass < kPasses; ++pass) {
    ptx::mbarrier_arrive(barrier);
    ptx::mbarrier_wait(barrier, pass & 1);
  }
  *clocks = {clock64() - begin, 0};
}

/// Two blocks of a cluster arrive at each other's barrier in turn: two ways a pass.
__global__ void __cluster_dims__(2, 1, 1) time_cluster_arrival(Clocks* clocks) {
  const std::uint32_t barrier = ptx::shared_address(&ptx::static_shared<std::uint64_t>());
  const std::uint32_t rank = ptx::cluster_ctarank();
  ptx::mbarrier_init(barrier, 1);
  ptx::fence_mbarrier_init();
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
  const std::uint32_t other = ptx::mapa(barrier, rank ^ 1);
  const long long begin = clock64();
  for (int pass = 0; pass < kPasses; ++pass) {
    if (rank == 0) ptx::mbarrier_arrive_cluster(other);
    ptx::mbarrier_wait(barrier, pass & 1);
    if (rank == 1) ptx::mbarrier_arrive_cluster(other);
  }
  if (rank == 0) *clocks = {clock64() - begin, 0};
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
}

/// Key tiles of 16 KiB by one thread of each block, kInFlight of them at a time, from the same 16.
template <int kInFlight>
__global__ void time_copies(const __grid_constant__ CUtensorMap map, Clocks* clocks) {
  constexpr std::uint32_t kTile = 128 * 128;
  constexpr int kTiles = 16;
  auto* shared = &ptx::dynamic_shared<std::uint8_t>();
  const std::uint32_t tiles = (ptx::shared_address(shared) + 1023u) & ~1023u;
  auto& barriers = ptx::static_shared<std::uint64_t[kInFlight]>();
  for (auto& barrier : barriers) ptx::mbarrier_init(ptx::shared_address(&barrier), 1);
  ptx::fence_mbarrier_init();
  const auto issue = [&](int pass) {
    const std::uint32_t barrier = ptx::shared_address(&barriers[pass % kInFlight]);
    ptx::mbarrier_arrive_expect_tx(barrier, kTile);
    ptx::cp_async_bulk_tensor_3d(tiles + kTile * static_cast<std::uint32_t>(pass % kInFlight), &map,
                                 barrier, 0, 128 * (pass % kTiles), 0);
  };
  const auto wait = [&](int pass) {
    ptx::mbarrier_wait(ptx::shared_address(&barriers[pass % kInFlight]),
                       static_cast<std::uint32_t>(pass / kInFlight % 2));
  };
  const long long begin = clock64();
  for (int pass = 0; pass < kPasses; ++pass) {
    issue(pass);
    if (pass >= kInFlight - 1) wait(pass - kInFlight + 1);
  }
  if (blockIdx.x == 0) *clocks = {clock64() - begin, 0};
  for (int pass = kPasses - kInFlight + 1; pass < kPasses; ++pass) wait(pass);
}

void run() {
  const int blocks = openvc::cuda::device_info(0).multiprocessors;
  Clocks* clocks = nullptr;
  float* sink = nullptr;
  std::byte* tiles = nullptr;
  constexpr std::size_t kTileBytes = std::size_t{128} * 128 * 16;
  check(cudaMalloc(&clocks, sizeof(*clocks)), "allocating clocks");
  check(cudaMalloc(&sink, 256 * sizeof(float)), "allocating a sink");
  check(cudaMalloc(&tiles, kTileBytes), "allocating tiles");
  check(cudaMemset(tiles, 0, kTileBytes), "clearing tiles");
  bool first = true;
  std::printf("{");
  const auto measure = [&](const char* name, const auto& launch) {
    Clocks least{};
    for (int repetition = 0; repetition < 5; ++repetition) {
      launch();
      check(cudaGetLastError(), name);
      check(cudaDeviceSynchronize(), name);
      Clocks found{};
      check(cudaMemcpy(&found, clocks, sizeof(found), cudaMemcpyDeviceToHost), "copying clocks");
      if (least.all == 0 || found.all < least.all) least = found;
    }
    std::printf("%s\n  \"%s\": {\"clocks\": %.2f, \"issue\": %.2f}", first ? "" : ",", name,
                static_cast<double>(least.all) / kPasses,
                static_cast<double>(least.issue) / kPasses);
    first = false;
  };
  const auto products = [&](auto kernel, const char* name, int warpgroups) {
    constexpr int kBytes = kOperandBytes + 1024;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), name);
    measure(name, [&] { kernel<<<1, 128 * warpgroups, kBytes>>>(clocks, sink); });
  };
  const auto both = [&](auto kernel, const char* one, const char* two) {
    products(kernel, one, 1);
    products(kernel, two, 2);
  };
  both(time_products<0, 1, 0>, "scores_1", "scores_1_two_warpgroups");
  both(time_products<0, 4, 0>, "scores_4", "scores_4_two_warpgroups");
  both(time_products<1, 0, 0>, "values_1", "values_1_two_warpgroups");
  both(time_products<4, 0, 0>, "values_4", "values_4_two_warpgroups");
  both(time_products<4, 4, 0>, "values_4_scores_4", "values_4_scores_4_two_warpgroups");
  both(time_products<0, 4, 1>, "scores_stream", "scores_stream_two_warpgroups");
  both(time_products<4, 0, 1>, "values_stream", "values_stream_two_warpgroups");
  both(time_products<4, 4, 1>, "both_stream", "both_stream_two_warpgroups");
  measure("arrival", [&] { time_arrival<<<1, 1>>>(clocks); });
  measure("cluster_arrival_two_ways", [&] { time_cluster_arrival<<<2, 1>>>(clocks); });
  const CUtensorMap map = openvc::cuda::encode_tensor_map({.data = tiles,
                                                           .shape = {128, 128 * 16, 1},
                                                           .row_bytes = 128,
                                                           .plane_bytes = kTileBytes,
                                                           .box = {128, 128}},
                                                          openvc::cuda::TileSwizzle::bytes_128);
  const auto copies = [&](auto kernel, const char* name, int count) {
    constexpr int kBytes = 6 * 128 * 128;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), name);
    measure(name, [&] { kernel<<<count, 1, kBytes>>>(map, clocks); });
  };
  copies(time_copies<1>, "copy_16k", 1);
  copies(time_copies<4>, "copy_16k_four", 1);
  copies(time_copies<1>, "copy_16k_all_blocks", blocks);
  copies(time_copies<4>, "copy_16k_four_all_blocks", blocks);
  std::printf("\n}\n");
  cudaFree(clocks);
  cudaFree(sink);
  cudaFree(tiles);
}

}  // namespace

int main() {
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hand_over_latency: %s\n", error.what());
    return 1;
  }
  return 0;
}
