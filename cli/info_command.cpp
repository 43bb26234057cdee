// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <memory>
#include <thread>

#include "command.hpp"
#include "openvc/info.hpp"

namespace openvc::cli {
namespace {

void print_info() {
  const Info build = info();
  fmt::print("Open-VC Attention {}, numerics contract {}\n\n", build.version,
             build.contract_version);
  fmt::print("CPU: {} threads, vector instructions {}\n", std::thread::hardware_concurrency(),
             build.cpu_simd_target);
  fmt::print("Backends:\n");
  for (const BackendInfo& backend : build.backends) {
    fmt::print("  {:<8}{:<6}{}{}\n", backend.name, backend.device, backend.detail,
               backend.run_on_hardware ? "" : " (not yet run on hardware)");
  }
}

}  // namespace

Command add_info_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand("info", "version, backends and instruction sets");
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
