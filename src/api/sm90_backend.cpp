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
  cuda::prepare::Request request;
  std::byte* workspace = nullptr;
  void* stream = nullptr;
};

std::string detail() { return "image sm_90a"; }

std::string refusal(const Call& call) {
  if (call.type == ElementType::float32) {
    return "q, k, v: element type float32; on CUDA devices expected bfloat16 or float16. Convert "
           "the tensors.";
  }
  const cuda::DeviceInfo& device = cuda::device_info(call.device.index);
  return cuda::sm90::refusal(device.major, device.minor);
}

static_assert(cuda::kMemoryAlignment % schedule::kSectionAlignment == 0);

void prepare(const Call& call, const Inputs& inputs, const Execution& execution,
             Prepared::Impl& prepared) {
  auto state = std::make_shared<Preparation>();
  cuda::prepare::Request& request = state->request;
  request.q = inputs.q;
  request.k = inputs.k;
  request.v = inputs.v;
  request.problem = call.problem;
  request.softmax_scale = call.softmax_scale;
  request.numerics = call.numerics;
  request.with_log_sum_exp = call.with_log_sum_exp;

  schedule::PreparedView& view = prepared.view;
  view.problem = call.problem;
  view.max_extra_steps = call.numerics.max_extra_steps;
  view.with_log_sum_exp = call.with_log_sum_exp;
  view.layout =
      schedule::prepared_layout(call.problem, view.max_extra_steps, view.with_log_sum_exp);
  prepared.memory_bytes = view.layout.bytes + cuda::prepare::workspace_bytes(request);
  prepared.memory = cuda::allocate(prepared.memory_bytes, call.device.index, execution);
  view.data = prepared.memory.get();
  state->workspace = prepared.memory.get() + view.layout.bytes;
  state->stream = execution.stream;
  cuda::prepare::launch(request, prepared.memory.get(), state->workspace, execution.stream);
  prepared.state = std::move(state);
}

std::vector<HeadPlan> read_plans(const Prepared::Impl& prepared) {
  const auto& state = *static_cast<const Preparation*>(prepared.state.get());
  const cuda::DeviceGuard guard(prepared.device.index);
  std::vector<HeadPlan> plans(static_cast<std::size_t>(prepared.view.problem.batch_heads()));
  cuda::prepare::read_plans(state.request, state.workspace, plans, state.stream);
  return plans;
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
