// SPDX-License-Identifier: BSD-3-Clause
#include "api/describe.hpp"

#include <array>
#include <charconv>
#include <iterator>

namespace openvc::api {

std::string describe(std::span<const std::int64_t> values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(values[i]);
  }
  return text + "]";
}

std::string describe(Device device) {
  return device.type == DeviceType::cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

std::string describe_bytes(std::size_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
  constexpr double kStep = 1024.0;
  auto amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; amount >= kStep && unit + 1 < std::size(kUnits); ++unit) amount /= kStep;
  std::array<char, 32> text{};
  const int decimals = unit == 0 ? 0 : 1;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), amount,
                                 std::chars_format::fixed, decimals)
                       .ptr;
  return std::string(text.data(), end) + " " + kUnits[unit];
}

}  // namespace openvc::api
