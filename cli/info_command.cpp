// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <memory>
#include <string>

#include "command.hpp"
#include "openvc/info.hpp"

namespace openvc::cli {
namespace {

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

void print_cuda(const CudaInfo& cuda) {
  fmt::print("CUDA: images {}, runtime {}, driver {}{}\n",
             cuda.images.empty() ? "none" : fmt::format("{}", fmt::join(cuda.images, ", ")),
             or_none(cuda.runtime), or_none(cuda.driver),
             cuda.driver_package.empty() ? "" : fmt::format(" ({})", cuda.driver_package));
  for (const CudaDeviceInfo& device : cuda.devices) {
    fmt::print("  cuda:{:<3}{}, compute capability {}: {}\n", device.index, device.name,
               device.compute_capability,
               device.backend.empty() ? "no kernel. " + device.refusal : device.backend);
  }
  if (cuda.devices.empty()) fmt::print("  no device: {}\n", cuda.problem);
}

void print_info() {
  const Info build = info();
  fmt::print("Open-VC Attention {}, numerics contract {}\n\n", build.version,
             build.contract_version);
  fmt::print("CPU: {} thread{} ({}), vector instructions {}\n", build.cpu_threads,
             build.cpu_threads == 1 ? "" : "s", build.cpu_threads_reason, build.cpu_simd_target);
  fmt::print("Backends:\n");
  for (const BackendInfo& backend : build.backends) {
    fmt::print("  {:<8}{:<6}{}{}\n", backend.name, backend.device, backend.detail,
               backend.run_on_hardware ? "" : " (not yet run on hardware)");
  }
  print_cuda(build.cuda);
  fmt::print("Last call of this process: {}\n", or_none(build.last_dispatch));
}

}  // namespace

Command add_info_command(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("info", "version, backends, devices and what runs on them");
  const auto as_json = std::make_shared<bool>(false);
  app->add_flag("--json", *as_json, "print JSON");
  return {app, [as_json] {
            if (*as_json) {
              fmt::print("{}\n", info_json());
            } else {
              print_info();
            }
            return kExitSuccess;
          }};
}

}  // namespace openvc::cli
