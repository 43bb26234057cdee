// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nanobind/nanobind.h>

namespace openvc::python {

/// Whether the work of initialising `module` was done by an earlier import in this process. If so,
/// the module now has the contents of the first one: `del sys.modules[...]` and another import give
/// the same types and functions.
///
/// Throws what Python turns into ImportError in a subinterpreter, and for a second copy of the
/// extension: types are registered once per process.
bool take_earlier_import(nanobind::module_ module);

/// Keeps a complete module for take_earlier_import().
void keep_import(nanobind::module_ module);

}  // namespace openvc::python
