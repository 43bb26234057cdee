// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

// Where the error budget goes. numeric_option_list.hpp has a row for each field, which every
// interface is made from or checked against.
namespace openvc {

/// A decision that the preparation can take per head from its statistics.
enum class Choice : std::uint8_t { never, automatic, always };

enum class ValueScale : std::uint8_t { per_channel, per_head };

/// Names of the values 0, 1, ... of an enumeration, the same in every interface.
[[nodiscard]] constexpr std::array<const char*, 3> names_of(Choice) noexcept {
  return {"never", "automatic", "always"};
}
[[nodiscard]] constexpr std::array<const char*, 2> names_of(ValueScale) noexcept {
  return {"per_channel", "per_head"};
}

/// What each option does stands in numeric_option_list.hpp. The defaults are those that
/// docs/numerics.md derives.
struct NumericOptions {
  bool smooth_keys = true;
  Choice rotation = Choice::automatic;
  int max_extra_steps = 2;
  float score_error_target = 0.32f;
  bool smooth_values = true;
  Choice value_axes = Choice::automatic;
  ValueScale value_scale = ValueScale::per_channel;
};

/// Whether an integer is the number of an enumerator.
template <class Enum>
[[nodiscard]] constexpr bool is_enumerator(Enum value) {
  return static_cast<std::size_t>(value) < names_of(value).size();
}

}  // namespace openvc
