// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/prepared_layout.hpp"

namespace openvc::cpu::testing {

/// One row of the result, before it is rounded to the output type.
struct ReferenceRow {
  std::vector<double> out;  // [kHeadDim]
  double log_sum_exp = 0.0;
  /// Scores that an accumulation in binary32 could round to another binary16 number.
  int ambiguous_scores = 0;
};

/// The contract, one score at a time: products and sums in binary64, rounded where the contract
/// says. Shares the scalar functions of src/numerics and the order of src/schedule with the
/// backend, but no layout, tiling or arithmetic of its kernels.
ReferenceRow reference_attention(const schedule::PreparedView& inputs, std::int64_t bh,
                                 std::int64_t query);

}  // namespace openvc::cpu::testing
