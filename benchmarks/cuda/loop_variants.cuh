// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include "cuda/sm90/mainloop.cuh"

// Another main loop of the Hopper kernel, to hold the clock model to more than one schedule. Dense,
// narrow, without extra steps; all else is the shipped source: loaders, barriers, output.
//
// Loops without promotion, or without softmax, are not among them: the assembler waits for every
// product of the one, and drops products of the other whose sums nobody reads.
namespace openvc::cuda::sm90 {

/// One score buffer: Q K of the next tile queues behind P V, and its scores are waited for.
struct OneScoreBuffer : Hopper {
  static constexpr KernelConfig kValue{};
};

template <class Config>
__device__ __forceinline__ void one_buffer_loop(Consumer<Config>& c, int count) {
  Fragments f;
  ptx::warpgroup_undefined_operand(f.partial);
  const auto scores_arrived = [&](int step) {
    ptx::wgmma_wait_group<0>();
    ptx::warpgroup_fence_operand(f.scores_a);
    c.template release_keys<1>();
    c.template softmax<ExpCastPath::narrow>(f, f.scores_a, step);
  };
  const auto values_arrived = [&] {
    ptx::warpgroup_fence_operand(f.partial);
    c.release_values();
    c.promote(f);
  };
  c.template issue_scores<0>(f.scores_a);
  c.key_ring.advance();
  scores_arrived(0);
#pragma unroll 1
  for (int step = 0; step + 1 < count; ++step) {
    c.issue_values(f);
    c.template issue_scores<0>(f.scores_a);
    c.key_ring.advance();
    ptx::wgmma_wait_group<1>();
    values_arrived();
    scores_arrived(step + 1);
  }
  c.release_query();
  c.issue_values(f);
  ptx::wgmma_wait_group<0>();
  values_arrived();
}

template <>
__device__ __forceinline__ void Consumer<OneScoreBuffer>::run_mainloop(int count) {
  one_buffer_loop(*this, count);
}

}  // namespace openvc::cuda::sm90
