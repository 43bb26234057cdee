// SPDX-License-Identifier: BSD-3-Clause
// An output must be writable: a view for reading is refused.
// expect: could not convert|no viable conversion|invalid initialization
#include "openvc/attention.hpp"

void run(const openvc::Prepared& prepared, const openvc::TensorView& input,
         const openvc::MutableTensorView& output) {
#ifdef OPENVC_WRONG
  (void)output;
  openvc::attention_prepared(prepared, input);
#else
  (void)input;
  openvc::attention_prepared(prepared, output);
#endif
}
