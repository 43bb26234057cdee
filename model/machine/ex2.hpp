// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace openvc::model {

/// ex2.approx.ftz.f32. Where 8 x is a binary16 number, which holds for all weights of narrow heads,
/// the result is an H200's (h200_ex2.bin). Elsewhere it is rounded to nearest, and an H200's is up
/// to two units of the last place below or one above.
float ex2(float x);

}  // namespace openvc::model
