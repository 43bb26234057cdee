// SPDX-License-Identifier: BSD-3-Clause
// A conversion beyond the range of an integer is undefined; constant evaluation has to see it.
// expect: overflow|constant expression
#include "numerics/exp_cast.hpp"

#ifdef OPENVC_WRONG
constexpr float kTooLarge = openvc::numerics::round_half_even(0x1p31f);
#else
constexpr float kLargest = openvc::numerics::round_half_even(0x1p30f);
#endif
