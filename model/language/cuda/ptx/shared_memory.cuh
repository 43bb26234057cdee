// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "machine/machine.hpp"

namespace openvc::cuda::ptx {

template <class T>
T& static_shared() {
  static const char kKey = 0;
  return *static_cast<T*>(model::static_shared(&kKey, sizeof(T), alignof(T)));
}

template <class T>
T& dynamic_shared() {
  return *static_cast<T*>(model::dynamic_shared());
}

}  // namespace openvc::cuda::ptx
