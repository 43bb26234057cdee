// SPDX-License-Identifier: BSD-3-Clause
#include "api/finite_check.hpp"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace openvc::api {

bool finite_check_enabled() {
  static const bool enabled = [] {
    const char* value = std::getenv("OPEN_VC_ATTN_CHECK");
    return value != nullptr && std::strcmp(value, "1") == 0;
  }();
  return enabled;
}

void check_finite(const Backend& backend, std::span<const NamedTensor> tensors,
                  const Execution& execution) {
  if (backend.find_non_finite == nullptr) return;
  for (const NamedTensor& argument : tensors) {
    std::int64_t index = backend.find_non_finite(argument.tensor, execution);
    if (index < 0) continue;
    std::array<std::int64_t, 4> place{};
    for (int axis = kChannel; axis >= 0; --axis) {
      const auto i = static_cast<std::size_t>(axis);
      place[i] = index % argument.tensor.shape[i];
      index /= argument.tensor.shape[i];
    }
    throw Error(ErrorCode::invalid_value,
                std::string(argument.name) + ": element " + describe(place) +
                    " is not finite; expected finite numbers because OPEN_VC_ATTN_CHECK=1. Find "
                    "out where it comes from, or unset the variable.");
  }
}

}  // namespace openvc::api
