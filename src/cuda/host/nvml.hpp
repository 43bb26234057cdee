// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

namespace openvc::cuda {

/// State of a GPU at one moment, for benchmark records. Fields that cannot be read are zero.
struct GpuSample {
  unsigned sm_clock_mhz = 0;
  unsigned memory_clock_mhz = 0;
  double power_watts = 0.0;
  unsigned temperature_celsius = 0;
  std::uint64_t throttle_reasons = 0;  // NVML's bit mask of clock event reasons
};

/// Reads the sensors through the management library, which is loaded at run time.
GpuSample sample_gpu(int ordinal);

/// Version of the installed driver, empty if unknown.
std::string driver_version();

}  // namespace openvc::cuda
