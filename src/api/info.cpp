// SPDX-License-Identifier: BSD-3-Clause
#include "openvc/info.hpp"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "api/backend.hpp"
#include "api/dispatch_record.hpp"
#include "api/first_use.hpp"
#include "cpu/row_kernels.hpp"
#include "cpu/thread_pool.hpp"
#include "numerics/contract.hpp"
#include "openvc/status.hpp"
#include "openvc/version.hpp"
#if defined(OPENVC_WITH_CUDA)
#include "cuda/host/device.hpp"
#include "cuda/host/environment.hpp"
#endif

namespace openvc {
namespace {

using Json = nlohmann::ordered_json;

#if defined(OPENVC_WITH_CUDA)
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
    result.refusal = choice.refusal.message;
    if (choice.backend == nullptr) return result;
    if (const auto failed = api::first_use().known_refusal(*choice.backend, request.q.device)) {
      result.refusal = failed->message;
    } else {
      result.backend = choice.backend->name;
    }
  } catch (const Error& error) {
    // A device that cannot even be asked; others may work.
    result.refusal = error.what();
  }
  return result;
}
#endif

CudaInfo cuda_info() {
  CudaInfo result;
#if defined(OPENVC_WITH_CUDA)
#if defined(OPENVC_WITH_CUDA_BACKENDS)
  result.images = api::cuda_images();
#endif
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

Json to_json(const BackendInfo& backend) {
  return {{"name", backend.name},
          {"device", backend.device},
          {"detail", backend.detail},
          {"run_on_hardware", backend.run_on_hardware}};
}

Json to_json(const CudaDeviceInfo& device) {
  return {{"index", device.index},
          {"name", device.name},
          {"compute_capability", device.compute_capability},
          {"backend", device.backend},
          {"refusal", device.refusal}};
}

template <class Item>
Json to_json(const std::vector<Item>& items) {
  Json array = Json::array();
  for (const Item& item : items) array.push_back(to_json(item));
  return array;
}

Json to_json(const CudaInfo& cuda) {
  return {{"images", cuda.images},
          {"runtime", cuda.runtime},
          {"driver", cuda.driver},
          {"driver_package", cuda.driver_package},
          {"devices", to_json(cuda.devices)},
          {"problem", cuda.problem}};
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
  const Json json = {{"version", all.version},
                     {"contract_version", all.contract_version},
                     {"backends", to_json(all.backends)},
                     {"cpu_simd_target", all.cpu_simd_target},
                     {"cpu_threads", all.cpu_threads},
                     {"cpu_threads_reason", all.cpu_threads_reason},
                     {"cuda", to_json(all.cuda)},
                     {"last_dispatch", all.last_dispatch}};
  // A driver may name a device in bytes that are not UTF-8; JSON must be.
  constexpr int kIndent = 2;
  return json.dump(kIndent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace openvc
