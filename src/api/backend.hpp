// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "openvc/attention.hpp"
#include "openvc/options.hpp"
#include "openvc/tensor_view.hpp"
#include "schedule/problem.hpp"

// The backends of this build, as a table of functions, and the choice among them.
namespace openvc::api {

/// A validated call, as much of it as decides which backend can serve it.
struct Call {
  Device device{};
  ElementType type = ElementType::bfloat16;
  schedule::Problem problem{};
  float softmax_scale = 1.0f;
  NumericOptions numerics{};
  bool with_log_sum_exp = false;
};

struct Inputs {
  const TensorView& q;
  const TensorView& k;
  const TensorView& v;
};

/// One backend. A function pointer per verb; no state.
struct Backend {
  const char* name;      ///< "cpu", "sm90"
  DeviceType device;     ///< that it computes on
  bool run_on_hardware;  ///< false until its tests have passed on the device it is made for

  /// One line for info(): instruction set or architecture images.
  std::string (*detail)();
  /// Empty if the backend can serve the call, else why not and what to do.
  std::string (*refusal)(const Call& call);
  /// Fills view, memory and plans; the caller has set the other fields.
  void (*prepare)(const Call& call, const Inputs& inputs, const Execution& execution,
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

/// The backend that serves a call, or why none does. A pure function of the call and the build.
struct BackendChoice {
  const Backend* backend = nullptr;
  std::string reason;  ///< only without a backend
};
BackendChoice choose_backend(const Call& call, std::span<const Backend* const> candidates);

extern const Backend kCpuBackend;
extern const Backend kSm90Backend;  // where the build has it: OPENVC_WITH_SM90

}  // namespace openvc::api
