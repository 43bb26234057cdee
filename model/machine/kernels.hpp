// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>

#include "machine/machine.hpp"

namespace openvc::model {

/// What a launch has to know of a kernel.
struct Kernel {
  std::string name = "kernel";
  Names names{};
  std::size_t dynamic_shared_bytes = 48 * 1024;  ///< that a launch may ask for
};

/// The kernel of a function, made when it is first asked for.
Kernel& kernel(const void* function);

}  // namespace openvc::model
