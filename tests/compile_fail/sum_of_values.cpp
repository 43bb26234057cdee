// SPDX-License-Identifier: BSD-3-Clause
// The sum reduces in place: an accessor must give references, not copies.
// expect: lvalue required|not assignable|using temporary
#include "numerics/canonical_sum.hpp"

float sum(float* values, std::int64_t count) {
#ifdef OPENVC_WRONG
  return openvc::numerics::sum_tree(count, [&](std::int64_t i) { return values[i]; });
#else
  return openvc::numerics::sum_tree(count, [&](std::int64_t i) -> float& { return values[i]; });
#endif
}
