// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "openvc/attention.hpp"
#include "openvc/options.hpp"
#include "openvc/tensor_view.hpp"
#include "schedule/prepare_request.hpp"

// The backends of this build, as a table of functions, and the choice among them.
namespace openvc::api {

/// One backend. A function pointer per verb; no state.
struct Backend {
  const char* name;      ///< "cpu", "sm90"
  DeviceType device;     ///< that it computes on
  bool run_on_hardware;  ///< false until its tests have passed on the device it is made for

  /// One line for info(): instruction set or architecture images.
  std::string (*detail)();
  /// Empty if the backend can serve the request, else why not and what to do. Reads no pointer.
  std::string (*refusal)(const schedule::PrepareRequest& request);
  /// Fills view, memory and plans; the caller has set the other fields.
  void (*prepare)(const schedule::PrepareRequest& request, const Execution& execution,
                  Prepared::Impl& prepared);
  void (*run)(const Prepared::Impl& prepared, const MutableTensorView& out, float* log_sum_exp,
              const Execution& execution);
  /// Plans of prepared inputs that keep them on the device; null if Prepared::Impl has them.
  std::vector<HeadPlan> (*read_plans)(const Prepared::Impl& prepared);
  /// Index of the first non-finite element in row-major order, -1 if there is none; null if the
  /// backend cannot look. For OPEN_VC_ATTN_CHECK.
  std::int64_t (*find_non_finite)(const TensorView& tensor, const Execution& execution);
};

/// All backends of this build, in order of preference per device.
std::span<const Backend* const> backends();

/// The backend that serves a request, or why none does.
struct BackendChoice {
  const Backend* backend = nullptr;
  std::string reason;  ///< only without a backend
};
BackendChoice choose_backend(const schedule::PrepareRequest& request,
                             std::span<const Backend* const> candidates);

extern const Backend kCpuBackend;
extern const Backend kSm90Backend;  // where the build has it: OPENVC_WITH_SM90

}  // namespace openvc::api
