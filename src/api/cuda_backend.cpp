// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/backend.hpp"
#include "api/cuda_architecture.hpp"
#include "api/describe.hpp"
#include "api/prepared.hpp"
#include "cuda/check/find_non_finite.hpp"
#include "cuda/host/device.hpp"
#include "cuda/host/device_copy.hpp"
#include "cuda/host/environment.hpp"
#include "cuda/host/stream_memory.hpp"
#include "cuda/output/leave_axes.hpp"
#include "cuda/prepare/prepare.hpp"
#if defined(OPENVC_SM90_IMAGES)
#include "cuda/sm90/launch.hpp"
#endif
#if defined(OPENVC_SM100_IMAGES)
#include "cuda/sm100/launch.hpp"
#endif
#include "schedule/prepared_layout.hpp"

// The CUDA backends: preparation kernels for all architectures, an attention kernel for each.
namespace openvc::api {
namespace {

// One row per architecture. CMake defines OPENVC_<NAME>_IMAGES where the build has its kernels.
// sm89/ has no row: its devices have 99 KB of shared memory for a block, and the preparation on
// axes wants up to 204 KB. Until it fits no call may be sent there.
constexpr CudaArchitecture kArchitectures[] = {
#if defined(OPENVC_SM90_IMAGES)
    {"sm90", {OPENVC_SM90_IMAGES}, true, cuda::sm90::kPackedFormat, cuda::sm90::launch},
#endif
#if defined(OPENVC_SM100_IMAGES)
    {"sm100", {OPENVC_SM100_IMAGES}, false, cuda::sm100::kPackedFormat, cuda::sm100::launch},
#endif
};

constexpr const char* kDeviceAdvice = " Use such a device, or move the tensors to the CPU.";

MaybeRefusal missing_device(const std::string& argument, int count) {
  if (count == 0) {
    return Refusal{ErrorCode::unsupported,
                   argument + ", but no CUDA device can be used: " + cuda::environment().problem +
                       "; expected a device of compute capability " +
                       supported_capabilities(kArchitectures) + "." + kDeviceAdvice};
  }
  return Refusal{
      ErrorCode::invalid_value,
      argument + "; expected one of the " + std::to_string(count) +
          " CUDA devices that this process sees, counted from 0. Move the tensors to one "
          "of them; CUDA_VISIBLE_DEVICES may hide others."};
}

MaybeRefusal refusal(const CudaArchitecture& architecture,
                     const schedule::PrepareRequest& request) {
  if (request.q.type == ElementType::float32) {
    return Refusal{ErrorCode::unsupported,
                   "q, k, v: element type float32; on CUDA devices expected bfloat16 or float16. "
                   "Convert the tensors."};
  }
  const std::string argument = "q, k, v: device " + describe(request.q.device);
  const cuda::DeviceInfo* device = nullptr;
  try {
    device = cuda::find_device(request.q.device.index);
  } catch (const Error& error) {
    return Refusal{error.code(), argument + " cannot be asked for its properties: " + error.what() +
                                     "; expected a working device." + kDeviceAdvice};
  }
  if (device == nullptr) return missing_device(argument, cuda::device_count());
  const ComputeCapability capability{device->major, device->minor};
  if (architecture.runs_on(capability)) return {};
  return Refusal{ErrorCode::unsupported,
                 argument + " (" + device->name + ") has compute capability " + capability.text() +
                     "; expected " + supported_capabilities(kArchitectures) +
                     ", which this build has kernels for." + kDeviceAdvice};
}

std::string detail(const CudaArchitecture& architecture) {
  std::string text;
  for (const std::string& image : architecture.image_names()) {
    text += (text.empty() ? "image " : ", ") + image;
  }
  return text;
}

/// What a preparation leaves besides the block. The plans of the heads are in its workspace, behind
/// the block in one allocation, and copied to the host only when somebody asks for them.
struct Preparation {
  schedule::PrepareRequest request;
  std::shared_ptr<cuda::StreamMemory> memory;
  std::byte* workspace = nullptr;
};

const Preparation& preparation_of(const Prepared::Impl& prepared) {
  return *static_cast<const Preparation*>(prepared.state.get());
}

static_assert(cuda::kMemoryAlignment % schedule::kSectionAlignment == 0);

std::size_t prepared_bytes(const schedule::PrepareRequest& request) {
  return schedule::prepared_layout(request).bytes + cuda::prepare::workspace_bytes(request);
}

void prepare(const schedule::PrepareRequest& request, const Execution& execution,
             Prepared::Impl& prepared) {
  auto state = std::make_shared<Preparation>();
  state->request = request;
  prepared.memory_bytes = prepared_bytes(request);
  state->memory = std::make_shared<cuda::StreamMemory>(prepared.memory_bytes,
                                                       request.q.device.index, execution);
  prepared.memory = {state->memory, state->memory->data()};
  prepared.view = schedule::prepared_view(request, prepared.memory.get());
  state->workspace = prepared.memory.get() + prepared.view.layout.bytes;
  cuda::prepare::launch(request, prepared.memory.get(), state->workspace, execution.stream);
  if (prepared.outlives_call) state->memory->outlive_call();
  prepared.state = std::move(state);
}

std::vector<HeadPlan> read_plans(const Prepared::Impl& prepared) {
  const Preparation& state = preparation_of(prepared);
  std::vector<HeadPlan> plans;
  state.memory->read("plans", [&](void* stream) {
    plans = numerics::summaries(cuda::prepare::read_plans(state.request, state.workspace, stream));
  });
  return plans;
}

void run(const CudaArchitecture& architecture, const Prepared::Impl& prepared,
         const MutableTensorView& out, float* log_sum_exp, const Execution& execution) {
  preparation_of(prepared).memory->use(execution, [&] {
    architecture.launch(prepared.view, out, log_sum_exp, execution.stream);
    cuda::output::leave_axes(prepared.view, out, execution.stream);
  });
}

constexpr DeviceAccess kDeviceAccess{.is_capturing = cuda::is_capturing,
                                     .on_own_stream = cuda::on_own_stream,
                                     .upload = cuda::upload,
                                     .download = cuda::download};

/// The backend of a row: functions without state that know their row at compile time.
template <std::size_t kRow>
constexpr Backend backend_of() {
  return {
      .name = kArchitectures[kRow].name,
      .device = DeviceType::cuda,
      .run_on_hardware = kArchitectures[kRow].run_on_hardware,
      .format = kArchitectures[kRow].format,
      .detail = [] { return detail(kArchitectures[kRow]); },
      .refusal =
          [](const schedule::PrepareRequest& request) {
            return refusal(kArchitectures[kRow], request);
          },
      .prepared_bytes = prepared_bytes,
      .prepare = prepare,
      .run =
          [](const Prepared::Impl& prepared, const MutableTensorView& out, float* log_sum_exp,
             const Execution& execution) {
            run(kArchitectures[kRow], prepared, out, log_sum_exp, execution);
          },
      .read_plans = read_plans,
      .find_non_finite = cuda::find_non_finite,
      .access = &kDeviceAccess,
  };
}

template <std::size_t... kRows>
constexpr auto make_backends(std::index_sequence<kRows...>) {
  return std::array{backend_of<kRows>()...};
}

constexpr auto kBackends = make_backends(std::make_index_sequence<std::size(kArchitectures)>());

}  // namespace

std::span<const Backend> cuda_backends() { return kBackends; }

std::vector<std::string> cuda_images() {
  std::vector<std::string> all;
  for (const CudaArchitecture& architecture : kArchitectures) {
    for (std::string& image : architecture.image_names()) all.push_back(std::move(image));
  }
  return all;
}

}  // namespace openvc::api
