// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

#include "study/prepared_head.hpp"

namespace openvc::study {

/// Repair rows for the `count` tokens of V whose rounding error has the largest energy: the choice
/// of the reference, for comparison. Ties go to the lower index.
///
/// `values` are those that were quantised, [keys][kHeadDim].
[[nodiscard]] RepairRows repair_by_energy(const DecodedHead& head, std::span<const float> values,
                                          std::int64_t count);

}  // namespace openvc::study
