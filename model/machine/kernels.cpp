// SPDX-License-Identifier: BSD-3-Clause
#include "machine/kernels.hpp"

#include <map>

namespace openvc::model {

Kernel& kernel(const void* function) {
  static std::map<const void*, Kernel> kernels;
  return kernels[function];
}

}  // namespace openvc::model
