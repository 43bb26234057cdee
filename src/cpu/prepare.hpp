// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>

#include "cpu/thread_pool.hpp"
#include "openvc/options.hpp"
#include "schedule/prepare_request.hpp"

namespace openvc::cpu {

/// Fills `block` (prepared_layout(request).bytes bytes, aligned to kSectionAlignment, contents
/// undefined on entry) and the plan of every head.
void prepare(const schedule::PrepareRequest& request, std::byte* block, std::span<HeadPlan> plans,
             ThreadPool& pool);

}  // namespace openvc::cpu
