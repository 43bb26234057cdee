// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "api/backend.hpp"
#include "api/prepared.hpp"
#include "cuda/check/find_non_finite.hpp"
#include "cuda/host/device.hpp"
#include "cuda/host/stream_memory.hpp"
#include "cuda/prepare/prepare.hpp"
#include "cuda/sm90/launch.hpp"
#include "schedule/prepared_layout.hpp"

// Hopper: preparation kernels for any device, the wgmma kernel for compute capability 9.0.
namespace openvc::api {
namespace {

/// What a preparation leaves besides the block. The plans of the heads are in its workspace, behind
/// the block in one allocation, where nobody waits for them unless asked.
struct Preparation {
  schedule::PrepareRequest request;
  std::byte* workspace = nullptr;
  void* stream = nullptr;
};

std::string detail() { return "image sm_90a"; }

std::string refusal(const schedule::PrepareRequest& request) {
  if (request.q.type == ElementType::float32) {
    return "q, k, v: element type float32; on CUDA devices expected bfloat16 or float16. Convert "
           "the tensors.";
  }
  const cuda::DeviceInfo& device = cuda::device_info(request.q.device.index);
  return cuda::sm90::refusal(device.major, device.minor);
}

static_assert(cuda::kMemoryAlignment % schedule::kSectionAlignment == 0);

void prepare(const schedule::PrepareRequest& request, const Execution& execution,
             Prepared::Impl& prepared) {
  auto state = std::make_shared<Preparation>();
  state->request = request;
  state->request.format = cuda::sm90::kPackedFormat;
  const std::size_t block_bytes = schedule::prepared_layout(state->request).bytes;
  prepared.memory_bytes = block_bytes + cuda::prepare::workspace_bytes(request);
  prepared.memory = cuda::allocate(prepared.memory_bytes, request.q.device.index, execution);
  prepared.view = schedule::prepared_view(state->request, prepared.memory.get());
  state->workspace = prepared.memory.get() + block_bytes;
  state->stream = execution.stream;
  cuda::prepare::launch(state->request, prepared.memory.get(), state->workspace, execution.stream);
  prepared.state = std::move(state);
}

std::vector<HeadPlan> read_plans(const Prepared::Impl& prepared) {
  const auto& state = *static_cast<const Preparation*>(prepared.state.get());
  const cuda::DeviceGuard guard(prepared.device.index);
  return numerics::summaries(
      cuda::prepare::read_plans(state.request, state.workspace, state.stream));
}

void run(const Prepared::Impl& prepared, const MutableTensorView& out, float* log_sum_exp,
         const Execution& execution) {
  cuda::sm90::launch(prepared.view, out, log_sum_exp, execution.stream);
}

}  // namespace

const Backend kSm90Backend{
    .name = "sm90",
    .device = DeviceType::cuda,
    .run_on_hardware = true,
    .detail = detail,
    .refusal = refusal,
    .prepare = prepare,
    .run = run,
    .read_plans = read_plans,
    .find_non_finite = cuda::find_non_finite,
};

}  // namespace openvc::api
