// SPDX-License-Identifier: BSD-3-Clause
// The answer of is_supported() is a truth value with a reason, not a number.
// expect: cannot convert|no viable conversion
#include "openvc/attention.hpp"

int answer(const openvc::Support& support) {
#ifdef OPENVC_WRONG
  return support;
#else
  return support ? 1 : 0;
#endif
}
