// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "study/self_check.hpp"

namespace openvc::study {

/// Number of finite codes that do not decode and encode to themselves.
[[nodiscard]] Measurement codec_round_trip();

/// Number of wrong roundings at the middle between neighbouring codes and one step beside it.
[[nodiscard]] Measurement codec_rounding();

/// Share of probability bytes that are not those of exponentiate-then-round. Both map a score to
/// one of the two codes around it; they differ in a fifth of all scores by construction.
[[nodiscard]] Measurement exp_cast_disagreement();

}  // namespace openvc::study
