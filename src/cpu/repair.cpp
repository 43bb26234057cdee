// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/repair.hpp"

#include <algorithm>
#include <numeric>

#include "numerics/repair.hpp"

namespace openvc::cpu {

std::vector<std::int64_t> select_repair_tokens(std::span<const float> scores, std::int64_t count) {
  std::vector<std::int64_t> tokens(scores.size());
  std::iota(tokens.begin(), tokens.end(), std::int64_t{0});
  const auto score = [&scores](std::int64_t token) {
    return scores[static_cast<std::size_t>(token)];
  };
  // The order is total, so the chosen set does not depend on the algorithm.
  std::nth_element(tokens.begin(), tokens.begin() + count, tokens.end(),
                   [&score](std::int64_t a, std::int64_t b) {
                     return numerics::repairs_before(score(a), a, score(b), b);
                   });
  tokens.resize(static_cast<std::size_t>(count));
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

}  // namespace openvc::cpu
