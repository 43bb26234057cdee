// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "openvc/numeric_options.hpp"

// Numeric options by what a caller wants: time or accuracy. docs/quality.md shows what each budget
// does to a model's output and to the speed.
namespace openvc {

enum class Budget : std::uint8_t {
  fast,      ///< k-steps only where a head's scores need them badly
  balanced,  ///< the defaults
  best,      ///< two k-steps in every head
};

/// Names of the values, as names_of(Choice) of numeric_options.hpp.
[[nodiscard]] constexpr std::array<const char*, 3> names_of(Budget) noexcept {
  return {"fast", "balanced", "best"};
}

/// The numeric options of a budget. Fields may be changed afterwards.
[[nodiscard]] constexpr NumericOptions numeric_options(Budget budget) noexcept {
  NumericOptions options;
  switch (budget) {
    case Budget::fast:
      options.score_error_target = 1.0f;
      break;
    case Budget::balanced:
      break;
    case Budget::best:
      options.max_extra_steps = 2;
      options.score_error_target = 0.0f;
      break;
  }
  return options;
}

}  // namespace openvc
