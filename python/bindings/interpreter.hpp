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

// Before Python 3.14, a thread that asks for the interpreter lock while the interpreter ends is
// ended on the spot, by an unwinding that C++ answers with std::terminate. The guards below let it
// wait for the end of the process instead, as newer versions do.

/// Holds the interpreter lock.
class Locked {
 public:
  Locked();
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

/// Leaves the interpreter lock to other threads.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace openvc::python
