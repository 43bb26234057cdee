// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "api/backend.hpp"
#include "api/refusal.hpp"

// A backend that has not yet run on hardware shows on the first use of a device by the process that
// it computes what the CPU backend computes, or is refused.
namespace openvc::api {

class FirstUse {
 public:
  /// Throws an Error unless the backend has run on hardware, or has passed its check on the device:
  /// the first call of all makes it, others wait. A check that has failed is reported by every
  /// later call; one that CUDA has ended is made again by the next.
  void require(const Backend& backend, Device device, const Execution& execution);

  /// What require() has found; it waits for nobody.
  MaybeRefusal known_refusal(const Backend& backend, Device device);

 private:
  struct State {
    std::mutex mutex;  // of what follows; held by whoever makes the check
    bool passed = false;
    MaybeRefusal failed{};
  };

  State& state_of(const Backend& backend, Device device);

  std::mutex mutex_;  // of states_
  std::map<std::pair<const Backend*, int>, std::unique_ptr<State>> states_;
};

/// Of this process.
FirstUse& first_use();

/// Whether first uses are checked; OPEN_VC_ATTN_SELF_CHECK=0 in the environment says no. Read once
/// per process.
bool self_check_enabled();

}  // namespace openvc::api
