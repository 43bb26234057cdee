// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nanobind/nanobind.h>

namespace openvc::python {

/// AttentionOptions, and the list of numeric options as Python data.
void bind_options(nanobind::module_& module);

}  // namespace openvc::python
