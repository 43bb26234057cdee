// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <cstdint>

namespace openvc::benchmarks {

/// State of a GPU at one moment, for benchmark records. Fields that cannot be read are zero.
struct GpuSample {
  unsigned sm_clock_mhz = 0;
  unsigned memory_clock_mhz = 0;
  double power_watts = 0.0;
  unsigned temperature_celsius = 0;
  std::uint64_t throttle_reasons = 0;  // NVML's bit mask of clock event reasons
};

/// The few entry points of NVML that are needed, looked up by name: the build needs no NVML header.
class Nvml {
 public:
  static const Nvml& instance() {
    static const Nvml nvml;
    return nvml;
  }

  [[nodiscard]] void* device(int ordinal) const {
    std::array<char, 32> bus{};
    void* handle = nullptr;
    if (by_bus_ == nullptr ||
        cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), ordinal) != cudaSuccess ||
        by_bus_(bus.data(), &handle) != 0) {
      return nullptr;
    }
    return handle;
  }

  int (*power)(void*, unsigned*) = nullptr;
  int (*clock)(void*, int, unsigned*) = nullptr;
  int (*temperature)(void*, int, unsigned*) = nullptr;
  int (*reasons)(void*, unsigned long long*) = nullptr;

 private:
  Nvml() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    int (*init)() = nullptr;
    load(library, "nvmlInit_v2", init);
    if (init == nullptr || init() != 0) return;
    load(library, "nvmlDeviceGetHandleByPciBusId_v2", by_bus_);
    load(library, "nvmlDeviceGetPowerUsage", power);
    load(library, "nvmlDeviceGetClockInfo", clock);
    load(library, "nvmlDeviceGetTemperature", temperature);
    load(library, "nvmlDeviceGetCurrentClocksThrottleReasons", reasons);
  }

  template <class Function>
  static void load(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
  }

  int (*by_bus_)(const char*, void**) = nullptr;
};

/// Reads the sensors through the management library, which is loaded at run time.
inline GpuSample sample_gpu(int ordinal) {
  constexpr int kSmClock = 1;
  constexpr int kMemoryClock = 2;
  constexpr int kGpuSensor = 0;
  constexpr double kMilliwatt = 1e-3;
  const Nvml& nvml = Nvml::instance();
  GpuSample sample;
  void* device = nvml.device(ordinal);
  if (device == nullptr) return sample;
  unsigned milliwatts = 0;
  unsigned long long reasons = 0;
  if (nvml.power != nullptr && nvml.power(device, &milliwatts) == 0) {
    sample.power_watts = milliwatts * kMilliwatt;
  }
  if (nvml.clock != nullptr) {
    (void)nvml.clock(device, kSmClock, &sample.sm_clock_mhz);
    (void)nvml.clock(device, kMemoryClock, &sample.memory_clock_mhz);
  }
  if (nvml.temperature != nullptr) {
    (void)nvml.temperature(device, kGpuSensor, &sample.temperature_celsius);
  }
  if (nvml.reasons != nullptr && nvml.reasons(device, &reasons) == 0) {
    sample.throttle_reasons = reasons;
  }
  return sample;
}

}  // namespace openvc::benchmarks
