// SPDX-License-Identifier: BSD-3-Clause
// The transform works in place: it must not take a row that somebody else owns.
// expect: no matching function for call to .hadamard
#include "numerics/hadamard.hpp"

#ifdef OPENVC_WRONG
void rotate(const float* row) { openvc::numerics::hadamard(row); }
#else
void rotate(float* row) { openvc::numerics::hadamard(row); }
#endif
