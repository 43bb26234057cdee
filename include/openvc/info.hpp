// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

// What this build is and what ran: the answer to "did FP8 really run, and where?".
// What a shared library shows: the build hides everything else.
#pragma GCC visibility push(default)
namespace openvc {

struct BackendInfo {
  std::string name;              ///< "cpu", "sm90", ...
  std::string device;            ///< "cpu" or "cuda"
  std::string detail;            ///< instruction set or architecture images
  bool run_on_hardware = false;  ///< false: compiled and checked, but not yet run on hardware
};

struct CudaDeviceInfo {
  int index = 0;  ///< CUDA ordinal
  std::string name;
  std::string compute_capability;  ///< "9.0"
  std::string backend;             ///< that serves calls on this device; empty if none does
  std::string refusal;             ///< why none does, and what to do; empty if one does
};

struct CudaInfo {
  std::vector<std::string> images;  ///< what the attention kernels are compiled for, "sm_90a"
  std::string runtime;              ///< CUDA version of this build, "13.0"; empty without CUDA
  std::string driver;          ///< newest CUDA version that the driver serves; empty without one
  std::string driver_package;  ///< version of the driver, "580.65.06"; empty if unknown
  std::vector<CudaDeviceInfo> devices;
  std::string problem;  ///< why there are no devices; empty if there are some
};

struct Info {
  std::string version;
  int contract_version = 0;  ///< of the numerics: equal versions give equal bytes
  std::vector<BackendInfo> backends;
  std::string cpu_simd_target;
  int cpu_threads = 0;             ///< of a call on CPU tensors that does not say
  std::string cpu_threads_reason;  ///< why that many
  CudaInfo cuda;
  /// The last attention that this process started, in words: backend, device, shape and
  /// configuration; empty before the first.
  std::string last_dispatch;
};

/// Creates no CUDA context.
Info info();

/// info() as a JSON object.
std::string info_json();

}  // namespace openvc
#pragma GCC visibility pop
