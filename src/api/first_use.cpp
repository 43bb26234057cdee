// SPDX-License-Identifier: BSD-3-Clause
#include "api/first_use.hpp"

#include <new>
#include <string>

#include "api/describe.hpp"
#include "api/environment_switch.hpp"
#include "api/first_use_check.hpp"

namespace openvc::api {
namespace {

constexpr const char* kSkipAdvice = "OPEN_VC_ATTN_SELF_CHECK=0 in the environment skips the check.";

std::string argument(const Backend& backend, Device device) {
  return "q, k, v: device " + describe(device) + ": backend " + backend.name +
         ", not yet run on hardware,";
}

}  // namespace

bool self_check_enabled() {
  // Tried again by the next call if it throws.
  static const bool enabled = environment_switch(
      "OPEN_VC_ATTN_SELF_CHECK", true, "to check backends that have not yet run on hardware");
  return enabled;
}

FirstUse& first_use() {
  static FirstUse uses;
  return uses;
}

FirstUse::State& FirstUse::state_of(const Backend& backend, Device device) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<State>& state = states_[{&backend, device.index}];
  if (state == nullptr) state = std::make_unique<State>();
  return *state;
}

void FirstUse::require(const Backend& backend, Device device, const Execution& execution) {
  if (backend.run_on_hardware || !self_check_enabled()) return;
  State& state = state_of(backend, device);
  const std::lock_guard lock(state.mutex);
  if (state.passed) return;
  if (state.failed) throw Error(state.failed->code, state.failed->message);
  if (backend.access->is_capturing(device.index, execution.stream)) {
    throw Error(ErrorCode::unsupported,
                "stream: it is being captured into a CUDA graph, and backend " +
                    std::string(backend.name) +
                    ", not yet run on hardware, has not been checked on " + describe(device) +
                    "; expected a call before the capture. Run one call before capturing, or set "
                    "OPEN_VC_ATTN_SELF_CHECK=0 in the environment, which skips the check.");
  }
  std::string fault;
  const auto give_up = [&](ErrorCode code, const std::string& found) {
    throw Error(code, argument(backend, device) +
                          " could not make the self-check of its first use: " + found +
                          "; expected a device that works and has free memory. Find out what it "
                          "says, or move the tensors to the CPU. " +
                          kSkipAdvice);
  };
  try {
    fault = first_use_fault(backend, device);
  } catch (const Error& error) {
    give_up(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    give_up(ErrorCode::out_of_memory, "an allocation failed");
  }
  if (fault.empty()) {
    state.passed = true;
    return;
  }
  state.failed = Refusal{
      ErrorCode::unsupported,
      argument(backend, device) + " has failed the self-check of its first use: " + fault +
          "; expected the CPU backend's result within the bound. Move the tensors to the CPU, and "
          "report it with the file that tools/hardware_report.sh makes "
          "(docs/hardware_records.md). " +
          kSkipAdvice};
  throw Error(state.failed->code, state.failed->message);
}

MaybeRefusal FirstUse::known_refusal(const Backend& backend, Device device) {
  if (backend.run_on_hardware) return {};
  State& state = state_of(backend, device);
  const std::unique_lock lock(state.mutex, std::try_to_lock);
  return lock.owns_lock() ? state.failed : MaybeRefusal{};
}

}  // namespace openvc::api
