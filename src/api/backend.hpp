// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/refusal.hpp"
#include "openvc/attention.hpp"
#include "openvc/options.hpp"
#include "openvc/tensor_view.hpp"
#include "schedule/prepare_request.hpp"

// The backends of this build, as a table of functions, and the choice among them.
namespace openvc::api {

/// What the check of a first use (first_use.hpp) needs of a device's memory and streams.
struct DeviceAccess {
  /// Whether what the stream is given becomes part of a graph.
  bool (*is_capturing)(int device, void* stream);
  /// Calls work(stream) with a stream that nobody else uses.
  void (*on_own_stream)(int device, const std::function<void(void* stream)>& work);
  /// A copy of bytes in memory of the device.
  std::shared_ptr<std::byte> (*upload)(std::span<const std::byte> bytes, int device, void* stream);
  /// A copy of the device's bytes, once the stream has done its work.
  std::vector<std::byte> (*download)(const std::byte* bytes, std::size_t size, int device,
                                     void* stream);
};

/// One backend. A function pointer per verb; no state.
struct Backend {
  const char* name;      ///< "cpu", "sm90"
  DeviceType device;     ///< that it computes on
  bool run_on_hardware;  ///< false until its tests have passed on the device it is made for
  schedule::PackedFormat format;  ///< of its prepared inputs
  /// One line for info(): instruction set or architecture images.
  std::string (*detail)();
  /// Why the backend cannot serve the request. Judges types, shapes, options and the device; reads
  /// no pointer and never throws because of the machine.
  MaybeRefusal (*refusal)(const schedule::PrepareRequest& request);
  /// Memory that prepare() takes for what it prepares, in the backend's format.
  std::size_t (*prepared_bytes)(const schedule::PrepareRequest& request);
  /// Fills view, memory and plans; the caller has set the other fields, and the format.
  void (*prepare)(const schedule::PrepareRequest& request, const Execution& execution,
                  Prepared::Impl& prepared);
  void (*run)(const Prepared::Impl& prepared, const MutableTensorView& out, float* log_sum_exp,
              const Execution& execution);
  /// Plans of prepared inputs that keep them on the device; null if Prepared::Impl has them.
  std::vector<HeadPlan> (*read_plans)(const Prepared::Impl& prepared);
  /// Index of the first non-finite element in row-major order, -1 if there is none; null if the
  /// backend cannot look. For OPEN_VC_ATTN_CHECK.
  std::int64_t (*find_non_finite)(const TensorView& tensor, const Execution& execution);
  /// Null where the backend works on the caller's memory. Backends that have not run on hardware
  /// have it.
  const DeviceAccess* access;
};

/// All backends of this build, the CPU first.
std::span<const Backend* const> backends();

/// The backend that serves a request, or why none does.
struct BackendChoice {
  const Backend* backend = nullptr;
  Refusal refusal{};  ///< only without a backend
};
BackendChoice choose_backend(const schedule::PrepareRequest& request,
                             std::span<const Backend* const> candidates);

extern const Backend kCpuBackend;

#if defined(OPENVC_WITH_CUDA_BACKENDS)
/// One backend per architecture that this build has kernels for.
std::span<const Backend> cuda_backends();
/// What those kernels are compiled for: "sm_90a".
std::vector<std::string> cuda_images();
#endif

}  // namespace openvc::api
