// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/host/driver_version.hpp"

#include <dlfcn.h>

#include <array>

namespace openvc::cuda {

// Only the management library (NVML) knows it. It is loaded at run time, and its functions are
// looked up by name: the build needs no NVML header, the machine no NVML.
std::string driver_version() {
  static const auto read = [] {
    using Init = int (*)();
    using Version = int (*)(char*, unsigned);
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return Version{nullptr};
    const auto init = reinterpret_cast<Init>(dlsym(library, "nvmlInit_v2"));
    if (init == nullptr || init() != 0) return Version{nullptr};
    return reinterpret_cast<Version>(dlsym(library, "nvmlSystemGetDriverVersion"));
  }();
  std::array<char, 96> text{};
  if (read == nullptr || read(text.data(), static_cast<unsigned>(text.size())) != 0) return {};
  return text.data();
}

}  // namespace openvc::cuda
