// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/prepare/prepare.hpp"

#include <cuda_runtime.h>

#include <cstddef>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/prepare/stages.cuh"

namespace openvc::cuda::prepare {
namespace {

template <ElementType kType, bool kAligned>
void launch_all(const Arguments& a, cudaStream_t stream) {
  launch_passes<kType, kAligned>(a, stream);
  launch_repair<kType, kAligned>(a, stream);
}

template <bool kAligned>
void launch_all(ElementType type, const Arguments& a, cudaStream_t stream) {
  switch (type) {
    case ElementType::bfloat16:
      return launch_all<ElementType::bfloat16, kAligned>(a, stream);
    case ElementType::float16:
      return launch_all<ElementType::float16, kAligned>(a, stream);
    case ElementType::float32:
      return launch_all<ElementType::float32, kAligned>(a, stream);
  }
}

}  // namespace

std::size_t workspace_bytes(const schedule::PrepareRequest& request) {
  return workspace_layout(request.problem).bytes;
}

void launch(const schedule::PrepareRequest& request, std::byte* block, std::byte* workspace,
            void* stream) {
  const DeviceGuard guard(request.q.device.index);
  const Arguments a = make_arguments(request, block, workspace);
  const auto queue = static_cast<cudaStream_t>(stream);
  if (is_aligned(a.q) && is_aligned(a.k) && is_aligned(a.v)) {
    launch_all<true>(request.q.type, a, queue);
  } else {
    launch_all<false>(request.q.type, a, queue);
  }
}

void read_plans(const schedule::PrepareRequest& request, const std::byte* workspace,
                std::span<HeadPlan> plans, void* stream) {
  const DeviceGuard guard(request.q.device.index);
  const WorkspaceLayout layout = workspace_layout(request.problem);
  const auto queue = static_cast<cudaStream_t>(stream);
  check(cudaMemcpyAsync(plans.data(), workspace + layout.plans, plans.size_bytes(),
                        cudaMemcpyDeviceToHost, queue),
        "copying the plans of the heads");
  check(cudaStreamSynchronize(queue), "waiting for the plans of the heads");
}

}  // namespace openvc::cuda::prepare
