// SPDX-License-Identifier: BSD-3-Clause
#include "api/finite_check.hpp"

#include <array>
#include <cstdint>
#include <string>

#include "api/describe.hpp"
#include "api/environment_switch.hpp"

namespace openvc::api {

bool finite_check_enabled() {
  // Tried again by the next call if it throws.
  static const bool enabled =
      environment_switch("OPEN_VC_ATTN_CHECK", false, "to look for elements that are not finite");
  return enabled;
}

void check_finite(const Backend& backend, std::span<const NamedTensor> tensors,
                  const Execution& execution, const TensorPart& part) {
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
    place[kBatch] += part.batch;
    if (!part.tokens.empty()) {
      place[kSequence] = part.tokens[static_cast<std::size_t>(place[kSequence])];
    }
    throw Error(ErrorCode::invalid_value,
                std::string(argument.name) + ": element " + describe(place) +
                    " is not finite; expected finite numbers because OPEN_VC_ATTN_CHECK=1. Find "
                    "out where it comes from, or unset the variable.");
  }
}

}  // namespace openvc::api
