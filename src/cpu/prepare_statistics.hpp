// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cpu/prepare.hpp"
#include "cpu/thread_pool.hpp"
#include "numerics/plan.hpp"
#include "numerics/v_quantize.hpp"

namespace openvc::cpu {

/// What one pass over the inputs of a head yields. Equal for any number of threads.
struct HeadStatistics {
  numerics::ScoreStatistics scores;
  std::array<numerics::ChannelRange, numerics::kHeadDim> values{};
  bool values_finite = true;
};

/// Statistics of the heads [first_head, first_head + count), counted over batch * heads.
std::vector<HeadStatistics> collect_statistics(const schedule::PrepareRequest& request,
                                               std::int64_t first_head, std::int64_t count,
                                               ThreadPool& pool);

}  // namespace openvc::cpu
