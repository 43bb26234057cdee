// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "api/backend.hpp"
#include "openvc/attention.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc {

/// Prepared inputs: one block of memory on the backend's device, and what is in it.
struct Prepared::Impl {
  const api::Backend* backend = nullptr;
  ElementType type = ElementType::bfloat16;
  Device device{};
  /// Given to the caller, who may use it on other streams and keep it longer than the stream that
  /// it was made on.
  bool outlives_call = false;
  schedule::PreparedView view{};
  std::shared_ptr<std::byte> memory;  // what view.data points into
  std::size_t memory_bytes = 0;
  std::vector<HeadPlan> plans;        // [B * H]; empty where the backend reads them on demand
  std::shared_ptr<const void> state;  // what else the backend keeps
};

}  // namespace openvc
