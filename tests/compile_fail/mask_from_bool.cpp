// SPDX-License-Identifier: BSD-3-Clause
// A bool must not become a mask.
// expect: cannot convert|incompatible type|invalid conversion|assigning to
#include "schedule/problem.hpp"

openvc::schedule::Problem causal_problem() {
  openvc::schedule::Problem problem;
#ifdef OPENVC_WRONG
  problem.mask = true;
#else
  problem.mask = openvc::Mask::causal;
#endif
  return problem;
}
