// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cpu/prepare.hpp"
#include "cpu/prepare_quantize.hpp"
#include "cpu/prepare_statistics.hpp"
#include "openvc/options.hpp"

namespace openvc::cpu {

/// Decides how a head is quantised. `head` counts over batch * heads; a few rows of its Q and K are
/// read again. Fills `plan` with what the public interface tells about it.
HeadRecipe plan_head(const schedule::PrepareRequest& request, std::int64_t head,
                     const HeadStatistics& statistics, HeadPlan& plan);

}  // namespace openvc::cpu
