// SPDX-License-Identifier: BSD-3-Clause
#include "interpreter.hpp"

#include <nanobind/stl/string.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>

namespace nb = nanobind;

namespace openvc::python {
namespace {

constexpr const char* kKey = "open_vc_attn._openvc";

// Its address tells copies of the extension apart.
char this_copy = 0;

/// What lives as long as the interpreter, whatever happens to sys.modules.
nb::dict interpreter_dict() {
  return nb::borrow<nb::dict>(PyInterpreterState_GetDict(PyInterpreterState_Get()));
}

std::string file_of(nb::handle module) {
  return nb::cast<std::string>(nb::str(nb::getattr(module, "__file__", nb::str("unknown file"))));
}

[[noreturn]] void wait_for_the_end() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace

bool take_earlier_import(nb::module_ module) {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    throw std::runtime_error(
        "open_vc_attn: import in a subinterpreter; expected the main interpreter, the only one "
        "that the extension serves. Import it there, or use another process.");
  }
  nb::dict shared = interpreter_dict();
  if (!shared.contains(kKey)) {
    // Until keep_import() puts the module here: an import that fails leaves types behind.
    shared[kKey] = nb::make_tuple(reinterpret_cast<std::uintptr_t>(&this_copy), nb::none());
    return false;
  }
  nb::tuple entry = nb::cast<nb::tuple>(shared[kKey]);
  nb::object earlier = entry[1];
  if (earlier.is_none()) {
    throw std::runtime_error(
        "open_vc_attn: an earlier import failed half way; expected one import per process that "
        "succeeds. Start a new process.");
  }
  if (nb::cast<std::uintptr_t>(entry[0]) != reinterpret_cast<std::uintptr_t>(&this_copy)) {
    throw std::runtime_error("open_vc_attn: this process has loaded " + file_of(earlier) +
                             ", and now " + file_of(module) +
                             "; expected one copy per process. Keep one of them on sys.path, and "
                             "start a new process to change to it.");
  }
  for (auto [name, value] : nb::cast<nb::dict>(earlier.attr("__dict__"))) {
    if (nb::cast<std::string>(name).starts_with("__")) continue;
    module.attr(nb::str(name)) = value;
  }
  return true;
}

void keep_import(nb::module_ module) {
  interpreter_dict()[kKey] = nb::make_tuple(reinterpret_cast<std::uintptr_t>(&this_copy), module);
}

// What is caught here is no exception of C++, and must not be left behind.
Locked::Locked() {
  try {
    state_ = PyGILState_Ensure();
  } catch (...) {
    wait_for_the_end();
  }
}

Unlocked::~Unlocked() {
  try {
    PyEval_RestoreThread(state_);
  } catch (...) {
    wait_for_the_end();
  }
}

}  // namespace openvc::python
