// SPDX-License-Identifier: BSD-3-Clause
#include "api/backend.hpp"

#include <span>
#include <string>

#include "api/validate.hpp"

namespace openvc::api {

// One line per backend; a device has at most one that accepts it.
std::span<const Backend* const> backends() {
  static constexpr const Backend* kBackends[] = {
    &kCpuBackend,
#if defined(OPENVC_WITH_SM90)
    &kSm90Backend,
#endif
  };
  return kBackends;
}

BackendChoice choose_backend(const schedule::PrepareRequest& request,
                             std::span<const Backend* const> candidates) {
  const Device device = request.q.device;
  std::string reasons;
  bool any = false;
  for (const Backend* backend : candidates) {
    if (backend->device != device.type) continue;
    any = true;
    const std::string reason = backend->refusal(request);
    if (reason.empty()) return {backend, {}};
    reasons += (reasons.empty() ? "" : " ") + std::string(backend->name) + ": " + reason;
  }
  if (any) return {nullptr, reasons};
  return {nullptr, "q, k, v: device " + describe(device) +
                       ", but this build has no backend for it. Move the tensors to the CPU, or "
                       "build with -DOPENVC_CUDA=ON."};
}

}  // namespace openvc::api
