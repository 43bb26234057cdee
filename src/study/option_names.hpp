// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "openvc/options.hpp"

namespace openvc::study {

[[nodiscard]] constexpr std::string_view choice_name(Choice choice) noexcept {
  switch (choice) {
    case Choice::never:
      return "never";
    case Choice::automatic:
      return "automatic";
    case Choice::always:
      return "always";
  }
  return "unknown";
}

[[nodiscard]] constexpr std::string_view mask_name(Mask mask) noexcept {
  return mask == Mask::causal ? "causal" : "none";
}

[[nodiscard]] constexpr std::string_view value_scale_name(ValueScale scale) noexcept {
  return scale == ValueScale::per_head ? "per_head" : "per_channel";
}

}  // namespace openvc::study
