// SPDX-License-Identifier: BSD-3-Clause
// Sizes are integers of 64 bits; a fraction is a mistake of the caller.
// expect: narrowing
#include "schedule/problem.hpp"

#ifdef OPENVC_WRONG
openvc::schedule::Problem problem{.keys = 2.5};
#else
openvc::schedule::Problem problem{.keys = 2};
#endif
