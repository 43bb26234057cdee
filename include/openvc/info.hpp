// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

// What this build is and what ran: the answer to "did FP8 really run, and where?".
namespace openvc {

struct BackendInfo {
  std::string name;              ///< "cpu", "sm90", ...
  std::string device;            ///< "cpu" or "cuda"
  std::string detail;            ///< instruction set or architecture images
  bool run_on_hardware = false;  ///< false: compiled and checked, but not yet run on hardware
};

struct Info {
  std::string version;
  int contract_version = 0;  ///< of the numerics: equal versions give equal bytes
  std::vector<BackendInfo> backends;
  std::string cpu_simd_target;
  /// The last attention that this process started, in words; empty before the first.
  std::string last_dispatch;
};

Info info();

/// info() as a JSON object.
std::string info_json();

}  // namespace openvc
