// SPDX-License-Identifier: BSD-3-Clause
#include "api/finite_check.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>

#include "api/describe.hpp"

namespace openvc::api {

namespace {

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, text) != words.end();
}

/// Whoever sets the variable is debugging: a value that is not understood must not mean "off".
bool read_switch() {
  const char* value = std::getenv("OPEN_VC_ATTN_CHECK");
  std::string text = value != nullptr ? value : "";
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (is_one_of(text, {"1", "true", "on", "yes"})) return true;
  if (is_one_of(text, {"", "0", "false", "off", "no"})) return false;
  throw Error(ErrorCode::invalid_value,
              "OPEN_VC_ATTN_CHECK: '" + std::string(value) +
                  "' in the environment; expected 1, true, on or yes to look for elements that are "
                  "not finite, or 0, false, off or no. Set one of them, or unset the variable.");
}

}  // namespace

bool finite_check_enabled() {
  static const bool enabled = read_switch();  // tried again by the next call if it throws
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
