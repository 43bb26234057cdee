// SPDX-License-Identifier: BSD-3-Clause
#include "openvc/info.hpp"

#include <cstdio>
#include <string>
#include <utility>

#include "api/backend.hpp"
#include "api/dispatch_record.hpp"
#include "cpu/row_kernels.hpp"
#include "cpu/thread_pool.hpp"
#include "numerics/contract.hpp"
#include "openvc/status.hpp"
#include "openvc/version.hpp"
#if defined(OPENVC_WITH_CHECK)
#include "cuda/check/environment.hpp"
#include "cuda/host/device.hpp"
#endif

namespace openvc {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

/// A JSON array of what `text` makes of each item.
template <class Items, class Text>
std::string joined(const Items& items, const Text& text) {
  std::string all;
  for (const auto& item : items) all += (all.empty() ? "" : ", ") + text(item);
  return "[" + all + "]";
}

#if defined(OPENVC_WITH_CHECK)
CudaDeviceInfo device_info(int index) {
  CudaDeviceInfo result;
  result.index = index;
  try {
    const cuda::DeviceInfo& device = cuda::device_info(index);
    result.name = device.name;
    result.compute_capability = std::to_string(device.major) + "." + std::to_string(device.minor);
    schedule::PrepareRequest request;
    request.q.device = {DeviceType::cuda, index};
    const api::BackendChoice choice = api::choose_backend(request, api::backends());
    if (choice.backend != nullptr) result.backend = choice.backend->name;
    result.refusal = choice.reason;
  } catch (const Error& error) {
    // A device that cannot even be asked; the others may do.
    result.refusal = error.what();
  }
  return result;
}
#endif

CudaInfo cuda_info() {
  CudaInfo result;
#if defined(OPENVC_WITH_CHECK)
  result.images = {OPENVC_CUDA_IMAGES};
  cuda::Environment found = cuda::environment();
  result.runtime = std::move(found.runtime);
  result.driver = std::move(found.driver);
  result.driver_package = std::move(found.driver_package);
  result.problem = std::move(found.problem);
  for (int i = 0; i < cuda::device_count(); ++i) result.devices.push_back(device_info(i));
#else
  result.problem = "this build has no CUDA backend: build with -DOPENVC_CUDA=ON";
#endif
  return result;
}

std::string to_json(const BackendInfo& backend) {
  return "{\"name\": " + quoted(backend.name) + ", \"device\": " + quoted(backend.device) +
         ", \"detail\": " + quoted(backend.detail) + ", \"status\": " +
         (backend.run_on_hardware ? "\"run on hardware\"" : "\"not yet run on hardware\"") + "}";
}

std::string to_json(const CudaDeviceInfo& device) {
  return "{\"index\": " + std::to_string(device.index) + ", \"name\": " + quoted(device.name) +
         ", \"compute_capability\": " + quoted(device.compute_capability) +
         ", \"backend\": " + quoted(device.backend) + ", \"refusal\": " + quoted(device.refusal) +
         "}";
}

std::string to_json(const CudaInfo& cuda) {
  return "{\"images\": " + joined(cuda.images, quoted) + ", \"runtime\": " + quoted(cuda.runtime) +
         ", \"driver\": " + quoted(cuda.driver) +
         ", \"driver_package\": " + quoted(cuda.driver_package) + ", \"devices\": " +
         joined(cuda.devices, [](const CudaDeviceInfo& device) { return to_json(device); }) +
         ", \"problem\": " + quoted(cuda.problem) + "}";
}

}  // namespace

Info info() {
  Info result;
  result.version = kVersion;
  result.contract_version = numerics::kContractVersion;
  for (const api::Backend* backend : api::backends()) {
    result.backends.push_back({backend->name, backend->device == DeviceType::cpu ? "cpu" : "cuda",
                               backend->detail(), backend->run_on_hardware});
  }
  result.cpu_simd_target = cpu::simd_target();
  cpu::DefaultThreads threads = cpu::default_threads();
  result.cpu_threads = threads.count;
  result.cpu_threads_reason = std::move(threads.reason);
  result.cuda = cuda_info();
  result.last_dispatch = api::last_dispatch();
  return result;
}

std::string info_json() {
  const Info all = info();
  return "{\"version\": " + quoted(all.version) +
         ", \"contract_version\": " + std::to_string(all.contract_version) + ", \"backends\": " +
         joined(all.backends, [](const BackendInfo& backend) { return to_json(backend); }) +
         ", \"cpu_simd_target\": " + quoted(all.cpu_simd_target) +
         ", \"cpu_threads\": " + std::to_string(all.cpu_threads) +
         ", \"cpu_threads_reason\": " + quoted(all.cpu_threads_reason) +
         ", \"cuda\": " + to_json(all.cuda) + ", \"last_dispatch\": " + quoted(all.last_dispatch) +
         "}";
}

}  // namespace openvc
