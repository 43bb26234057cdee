// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "openvc/numeric_option_list.hpp"

// Values of every numeric option that must be accepted, and that must be refused.
namespace openvc::test {

template <class Value>
std::vector<Value> good_values(const NumericOption<Value>& option) {
  if constexpr (std::is_same_v<Value, bool>) {
    return {false, true};
  } else if constexpr (std::is_enum_v<Value>) {
    std::vector<Value> values;
    for (std::size_t i = 0; i < names_of(Value{}).size(); ++i) {
      values.push_back(static_cast<Value>(i));
    }
    return values;
  } else if constexpr (std::is_same_v<Value, int>) {
    return {option.allowed.values.begin(), option.allowed.values.end()};
  } else {
    return {option.allowed.least, option.allowed.most, option.default_value()};
  }
}

/// C++ cannot hold a bad bool; C can, see the tests of the C interface.
template <class Value>
std::vector<Value> bad_values(const NumericOption<Value>& option) {
  if constexpr (std::is_same_v<Value, bool>) {
    return {};
  } else if constexpr (std::is_enum_v<Value>) {
    const std::size_t count = names_of(Value{}).size();
    return {static_cast<Value>(count), static_cast<Value>(0xFF)};
  } else if constexpr (std::is_same_v<Value, int>) {
    using Limits = std::numeric_limits<int>;
    std::vector<int> values{-1, std::ranges::max(option.allowed.values) + 1, Limits::min(),
                            Limits::max()};
    std::erase_if(values, [&](int value) { return is_allowed(option, value); });
    return values;
  } else {
    using Limits = std::numeric_limits<float>;
    std::vector<float> values{Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()};
    for (const float value : {std::nextafter(option.allowed.least, -Limits::infinity()),
                              std::nextafter(option.allowed.most, Limits::infinity())}) {
      if (std::isfinite(value)) values.push_back(value);
    }
    return values;
  }
}

}  // namespace openvc::test
