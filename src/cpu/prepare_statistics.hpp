// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <vector>

#include "cpu/prepare.hpp"
#include "cpu/thread_pool.hpp"
#include "numerics/statistics.hpp"

namespace openvc::cpu {

/// Statistics of all heads, in the order of batch * heads. Equal for any number of threads.
std::vector<numerics::HeadStatistics> collect_statistics(const schedule::PrepareRequest& request,
                                                         ThreadPool& pool);

}  // namespace openvc::cpu
