// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/prepare/prepare.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/prepare/stages.cuh"

namespace openvc::cuda::prepare {
namespace {

template <ElementType kType, bool kAligned>
void launch_round(const Arguments& a, cudaStream_t stream) {
  launch_statistics<kType, kAligned>(a, stream);
  launch_finish(a, stream);
  launch_quantize<kType, kAligned>(a, stream);
  launch_repair<kType, kAligned>(a, stream);
}

template <bool kAligned>
void launch_round(ElementType type, const Arguments& a, cudaStream_t stream) {
  switch (type) {
    case ElementType::bfloat16:
      return launch_round<ElementType::bfloat16, kAligned>(a, stream);
    case ElementType::float16:
      return launch_round<ElementType::float16, kAligned>(a, stream);
    case ElementType::float32:
      return launch_round<ElementType::float32, kAligned>(a, stream);
  }
}

}  // namespace

std::size_t workspace_bytes(const Request& request) {
  return workspace_layout(request.problem, heads_per_round(request)).bytes;
}

void launch(const Request& request, std::byte* block, std::byte* workspace, void* stream) {
  const DeviceGuard guard(request.q.device.index);
  Arguments a = make_arguments(request, block, workspace);
  const bool aligned = is_aligned(a.q) && is_aligned(a.k) && is_aligned(a.v);
  const auto queue = static_cast<cudaStream_t>(stream);
  const std::int64_t heads = request.problem.batch_heads();
  for (; a.first_head < heads; a.first_head += a.heads_per_round) {
    a.heads = std::min(a.heads_per_round, heads - a.first_head);
    if (aligned) {
      launch_round<true>(request.q.type, a, queue);
    } else {
      launch_round<false>(request.q.type, a, queue);
    }
  }
}

void read_plans(const Request& request, const std::byte* workspace, std::span<HeadPlan> plans,
                void* stream) {
  const DeviceGuard guard(request.q.device.index);
  const WorkspaceLayout layout = workspace_layout(request.problem, heads_per_round(request));
  const auto queue = static_cast<cudaStream_t>(stream);
  check(cudaMemcpyAsync(plans.data(), workspace + layout.plans, plans.size_bytes(),
                        cudaMemcpyDeviceToHost, queue),
        "copying the plans of the heads");
  check(cudaStreamSynchronize(queue), "waiting for the plans of the heads");
}

}  // namespace openvc::cuda::prepare
