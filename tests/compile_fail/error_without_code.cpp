// SPDX-License-Identifier: BSD-3-Clause
// Every error carries the code that the C and Python interfaces map.
// expect: no matching (function|conversion)
#include "openvc/status.hpp"

void refuse() {
#ifdef OPENVC_WRONG
  throw openvc::Error("no code");
#else
  throw openvc::Error(openvc::ErrorCode::unsupported, "with a code");
#endif
}
