// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

#include "cpu/thread_pool.hpp"
#include "numerics/head_plan.hpp"
#include "schedule/prepare_request.hpp"

namespace openvc::cpu {

/// What the CPU backend reads: any multiple of a tile of queries, and no rows of ones. They are
/// those of the Hopper kernel, so that both prepare the same bytes and tests can compare them.
inline constexpr schedule::PackedFormat kPackedFormat{.query_tile = 256, .ones_rows = 1};

/// Fills `block` (prepared_layout(request).bytes bytes, aligned to kSectionAlignment, contents
/// undefined on entry) and returns the plan of every head. Any format.
std::vector<numerics::HeadPlan> prepare(const schedule::PrepareRequest& request, std::byte* block,
                                        ThreadPool& pool);

}  // namespace openvc::cpu
