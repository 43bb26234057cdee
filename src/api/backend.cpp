// SPDX-License-Identifier: BSD-3-Clause
#include "api/backend.hpp"

#include <span>
#include <string>
#include <vector>

#include "api/describe.hpp"

namespace openvc::api {

std::span<const Backend* const> backends() {
  static const std::vector<const Backend*> all = [] {
    std::vector<const Backend*> list{&kCpuBackend};
#if defined(OPENVC_WITH_CUDA_BACKENDS)
    for (const Backend& backend : cuda_backends()) list.push_back(&backend);
#endif
    return list;
  }();
  return all;
}

BackendChoice choose_backend(const schedule::PrepareRequest& request,
                             std::span<const Backend* const> candidates) {
  const Device device = request.q.device;
  MaybeRefusal all;
  for (const Backend* backend : candidates) {
    if (backend->device != device.type) continue;
    const MaybeRefusal refusal = backend->refusal(request);
    if (!refusal) return {backend, {}};
    if (!all) {
      all = refusal;
    } else if (all->message.find(refusal->message) == std::string::npos) {
      all->message += " " + refusal->message;
    }
  }
  if (all) return {nullptr, *all};
  return {nullptr,
          {ErrorCode::unsupported, "q, k, v: device " + describe(device) +
                                       ", but this build has no backend for it; expected cpu. Move "
                                       "the tensors to the CPU, or build with -DOPENVC_CUDA=ON."}};
}

}  // namespace openvc::api
