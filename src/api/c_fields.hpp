// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string_view>
#include <tuple>
#include <utility>

#include "openvc/numeric_option_list.hpp"
#include "openvc/openvc.h"

// Which field of the C structure belongs to which numeric option.
namespace openvc::api {

/// A numeric option in the structure of C: a float, or else an int32_t.
template <class Native>
struct CField {
  const char* name;
  Native openvc_options::*field;
};

template <class Native>
CField(const char*, Native openvc_options::*) -> CField<Native>;

#define OPENVC_C_FIELD(name) \
  CField { #name, &openvc_options::name }
inline constexpr std::tuple kNumericFields{
    OPENVC_C_FIELD(smooth_keys),     OPENVC_C_FIELD(rotation),
    OPENVC_C_FIELD(max_extra_steps), OPENVC_C_FIELD(score_error_target),
    OPENVC_C_FIELD(smooth_values),   OPENVC_C_FIELD(value_axes),
    OPENVC_C_FIELD(value_scale),
};
#undef OPENVC_C_FIELD

using NumericIndices = std::make_index_sequence<std::tuple_size_v<decltype(kNumericOptions)>>;

template <std::size_t... I>
constexpr bool are_those_of_the_list(std::index_sequence<I...>) {
  return (
      (std::string_view(std::get<I>(kNumericOptions).name) == std::get<I>(kNumericFields).name) &&
      ...);
}
static_assert(std::tuple_size_v<decltype(kNumericFields)> == NumericIndices::size(),
              "every row of kNumericOptions has its field in openvc_options, and its line above");
static_assert(are_those_of_the_list(NumericIndices{}), "the lines above are in the list's order");

template <class Visit, std::size_t... I>
void for_each_numeric_field(const Visit& visit, std::index_sequence<I...>) {
  (visit(std::get<I>(kNumericOptions), std::get<I>(kNumericFields).field), ...);
}

/// Calls `visit` with every row of the list and the field of C that belongs to it.
template <class Visit>
void for_each_numeric_field(const Visit& visit) {
  for_each_numeric_field(visit, NumericIndices{});
}

}  // namespace openvc::api
