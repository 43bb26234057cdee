// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace openvc::cpu {

/// The `count` tokens with the largest scores, ties to the lower index, in ascending order.
std::vector<std::int64_t> select_repair_tokens(std::span<const float> scores, std::int64_t count);

}  // namespace openvc::cpu
