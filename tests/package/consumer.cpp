// SPDX-License-Identifier: BSD-3-Clause
#include <openvc/attention.hpp>
#include <openvc/version.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

// Attention over equal values returns that value, whatever the scores are.
int main() {
  constexpr std::uint16_t kHalf = 0x3F00;  // 0.5 as bfloat16
  const openvc::TensorView tensor_shape{.shape = {1, 3, 1, 128},
                                        .strides = openvc::contiguous_strides({1, 3, 1, 128})};
  const std::vector<std::uint16_t> values(3 * 128, kHalf);
  std::vector<std::uint16_t> out(values.size());

  openvc::TensorView input = tensor_shape;
  input.data = values.data();
  openvc::attention(input, input, input,
                    {.data = out.data(), .shape = input.shape, .strides = input.strides});

  const bool is_right = std::all_of(out.begin(), out.end(), [](auto x) { return x == kHalf; });
  std::printf("openvc %s: %s\n", openvc::kVersion, is_right ? "right" : "wrong");
  return is_right ? 0 : 1;
}
