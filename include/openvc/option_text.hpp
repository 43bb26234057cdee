// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "openvc/numeric_option_list.hpp"

// Options in words: names of values, and what the messages and the help of every interface say.
namespace openvc {

/// "a, b or c".
[[nodiscard]] inline std::string either_of(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 < words.size() ? ", " : " or ";
    text += words[i];
  }
  return text;
}

/// The shortest text that reads back as `value`.
[[nodiscard]] inline std::string number_text(float value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

/// A value of an option: "true", "automatic", "2", "0.32".
template <class Value>
[[nodiscard]] std::string value_text(Value value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_enum_v<Value>) {
    const auto number = static_cast<std::size_t>(value);
    return is_enumerator(value) ? names_of(value)[number] : std::to_string(number);
  } else if constexpr (std::is_same_v<Value, float>) {
    return number_text(value);
  } else {
    return std::to_string(value);
  }
}

/// The enumerator of that name, empty if there is none.
template <class Enum>
[[nodiscard]] std::optional<Enum> enumerator_named(std::string_view name) {
  const auto names = names_of(Enum{});
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

/// "never (0), automatic (1) or always (2)", for callers who pass numbers; else without those.
template <class Enum>
[[nodiscard]] std::string expected_enumerators(bool with_numbers) {
  std::vector<std::string> words;
  for (const char* name : names_of(Enum{})) {
    words.emplace_back(name);
    if (with_numbers) words.back() += " (" + std::to_string(words.size() - 1) + ")";
  }
  return either_of(words);
}

/// Which values an option allows: "0, 1, 2 or 4", "a finite number >= 0 (single precision)".
template <class Value>
[[nodiscard]] std::string expected_values(const NumericOption<Value>& option,
                                          bool with_numbers = false) {
  if constexpr (std::is_enum_v<Value>) {
    return expected_enumerators<Value>(with_numbers);
  } else if constexpr (std::is_same_v<Value, int>) {
    std::vector<std::string> words;
    for (const int value : option.allowed.values) words.push_back(std::to_string(value));
    return either_of(words);
  } else if constexpr (std::is_same_v<Value, float>) {
    using Limits = std::numeric_limits<float>;
    std::string text = "a finite number";
    if (option.allowed.least > Limits::lowest()) {
      text += " >= " + number_text(option.allowed.least);
    }
    if (option.allowed.most < Limits::max()) {
      text += std::string(option.allowed.least > Limits::lowest() ? " and" : "") +
              " <= " + number_text(option.allowed.most);
    }
    return text + " (single precision)";
  } else {
    return "true or false";
  }
}

}  // namespace openvc
