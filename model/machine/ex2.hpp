// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace openvc::model {

/// ex2.approx.ftz.f32 of Hopper, bit for bit.
float ex2(float x);

}  // namespace openvc::model
