// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "openvc/numeric_options.hpp"

// The one list of numeric options that every interface is made from or checked against (C, Python,
// the torch operator, the command line, reports). A header of its own, which no device code reads.
//
// A new option is a field of NumericOptions and its row in kNumericOptions. The compiler names the
// place in the C interface that is then missing, tests name the type stubs of Python.
namespace openvc {

/// Which values a field may have. Booleans and enumerations: every value of their type.
template <class Value>
struct AllowedValues {};

template <>
struct AllowedValues<int> {
  std::span<const int> values;
};

/// Finite numbers from `least` to `most`.
template <>
struct AllowedValues<float> {
  float least = std::numeric_limits<float>::lowest();
  float most = std::numeric_limits<float>::max();

  /// False for NaN. Takes a double, so that no number is rounded into the range.
  [[nodiscard]] constexpr bool contains(double value) const {
    return value >= static_cast<double>(least) && value <= static_cast<double>(most);
  }
};

/// One row of the list.
template <class Value>
struct NumericOption {
  const char* name;
  Value NumericOptions::*field;
  AllowedValues<Value> allowed{};
  const char* unit = "";
  /// Its first sentence is the help of the command line.
  const char* documentation;

  [[nodiscard]] constexpr Value default_value() const { return NumericOptions{}.*field; }
};

inline constexpr std::array kExtraStepLimits{0, 1, 2, 4};

inline constexpr std::tuple kNumericOptions{
    NumericOption<bool>{
        .name = "smooth_keys",
        .field = &NumericOptions::smooth_keys,
        .documentation = "Subtract the token mean of K. The softmax does not change "
                         "(SageAttention2, VC-Attention).",
    },
    NumericOption<Choice>{
        .name = "rotation",
        .field = &NumericOptions::rotation,
        .documentation = "Rotation of Q and K: residual columns on the principal axes of a head, "
                         "Hadamard for a head without such columns (VC-Attention). automatic "
                         "rotates where that is predicted to help, never on axes in short calls; "
                         "always rotates every head.",
    },
    NumericOption<int>{
        .name = "max_extra_steps",
        .field = &NumericOptions::max_extra_steps,
        .allowed = {kExtraStepLimits},
        .documentation = "Upper limit of extra k-steps of QK residual columns per head. Each costs "
                         "12.5 % of the matrix products of the heads that use it.",
    },
    NumericOption<float>{
        .name = "score_error_target",
        .field = &NumericOptions::score_error_target,
        .allowed = {.least = 0.0f},
        .unit = "1/8 octaves",
        .documentation = "Standard deviation that a k-step must remove from the scores of a head "
                         "to be spent. 0 spends max_extra_steps in every head.",
    },
    NumericOption<bool>{
        .name = "smooth_values",
        .field = &NumericOptions::smooth_values,
        .documentation = "Remove the token mean of every channel of V before rounding and add it "
                         "back to the output.",
    },
    NumericOption<Choice>{
        .name = "value_axes",
        .field = &NumericOptions::value_axes,
        .documentation = "Code V on the principal axes of its head, with residual columns for the "
                         "seven strongest. Calls with fewer than 4,096 keys, or with V repair, do "
                         "without. automatic does so in heads of at least 2^28 scores where these "
                         "axes hold enough of V's energy, always wherever V is finite, varies and "
                         "has elements of an ordinary size.",
    },
    NumericOption<ValueScale>{
        .name = "value_scale",
        .field = &NumericOptions::value_scale,
        .documentation = "What shares one scale of V.",
    },
};

/// Calls `visit` with every row in order; the type of the row tells the type of the field.
template <class Visit>
constexpr void for_each_numeric_option(const Visit& visit) {
  std::apply([&visit](const auto&... option) { (visit(option), ...); }, kNumericOptions);
}

template <class Value>
[[nodiscard]] constexpr bool is_allowed(const NumericOption<Value>& option, Value value) {
  if constexpr (std::is_enum_v<Value>) {
    return is_enumerator(value);
  } else if constexpr (std::is_same_v<Value, int>) {
    return std::ranges::find(option.allowed.values, value) != option.allowed.values.end();
  } else if constexpr (std::is_same_v<Value, float>) {
    return option.allowed.contains(static_cast<double>(value));
  } else {
    static_assert(std::is_same_v<Value, bool>, "say here which values this type of option allows");
    return true;
  }
}

namespace detail {

struct AnyValue {
  template <class T>
  constexpr operator T() const;
};

/// How many fields an aggregate has: how many values its braces take.
template <class Aggregate, class... Values>
constexpr std::size_t field_count() {
  if constexpr (requires { Aggregate{std::declval<Values>()..., AnyValue{}}; }) {
    return field_count<Aggregate, Values..., AnyValue>();
  } else {
    return sizeof...(Values);
  }
}

}  // namespace detail

static_assert(detail::field_count<NumericOptions>() == std::tuple_size_v<decltype(kNumericOptions)>,
              "every field of NumericOptions has a row in kNumericOptions");

}  // namespace openvc
