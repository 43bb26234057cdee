// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "cuda/host/check.hpp"

// The SM clock while another kernel runs: one warp on an SM of its own notes pairs of time and
// clock, and the kernel under test is enclosed by notes of the time.
namespace openvc::benchmarks {

struct ClockSample {
  unsigned long long nanoseconds;
  long long clocks;
};

__device__ __forceinline__ unsigned long long device_nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

__global__ void sample_clock(ClockSample* samples, int count, unsigned long long interval) {
  if (threadIdx.x != 0) return;
  unsigned long long next = device_nanoseconds();
  for (int i = 0; i < count; ++i) {
    unsigned long long now = device_nanoseconds();
    while (now < next) now = device_nanoseconds();  // ends where the timer steps
    samples[i] = {now, clock64()};
    next += interval;
  }
}

__global__ void note_time(unsigned long long* time) { *time = device_nanoseconds(); }

__global__ void spin(unsigned long long nanoseconds) {
  const unsigned long long end = device_nanoseconds() + nanoseconds;
  while (device_nanoseconds() < end) {
  }
}

/// Clocks at a time between samples.
inline double clock_at(const std::vector<ClockSample>& samples, double nanoseconds) {
  std::size_t i = 1;
  while (i + 1 < samples.size() && static_cast<double>(samples[i].nanoseconds) < nanoseconds) ++i;
  const ClockSample& a = samples[i - 1];
  const ClockSample& b = samples[i];
  const double slope =
      static_cast<double>(b.clocks - a.clocks) / static_cast<double>(b.nanoseconds - a.nanoseconds);
  return static_cast<double>(a.clocks) + slope * (nanoseconds - static_cast<double>(a.nanoseconds));
}

struct TimedLaunch {
  double milliseconds;  // between events
  double megahertz;     // mean of the launch
  bool covered;         // the samples cover it
};

/// Launches once on an otherwise idle GPU and measures it.
class LaunchTimer {
 public:
  LaunchTimer() {
    using cuda::check;
    check(cudaStreamCreateWithFlags(&work_, cudaStreamNonBlocking), "creating a stream");
    check(cudaStreamCreateWithFlags(&clock_, cudaStreamNonBlocking), "creating a stream");
    check(cudaEventCreate(&begin_), "creating an event");
    check(cudaEventCreate(&end_), "creating an event");
    check(cudaMalloc(&samples_, kSamples * sizeof(ClockSample)), "allocating samples");
    check(cudaMalloc(&times_, 2 * sizeof(unsigned long long)), "allocating times");
  }
  ~LaunchTimer() {
    cudaFree(samples_);
    cudaFree(times_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(work_);
    cudaStreamDestroy(clock_);
  }
  LaunchTimer(const LaunchTimer&) = delete;
  LaunchTimer& operator=(const LaunchTimer&) = delete;

  template <class Launch>
  TimedLaunch time(const Launch& launch) {
    using cuda::check;
    sample_clock<<<1, 32, 0, clock_>>>(samples_, kSamples, kInterval);
    spin<<<1, 1, 0, work_>>>(kLead);  // the clock is up and the queue is filled
    note_time<<<1, 1, 0, work_>>>(times_);
    check(cudaEventRecord(begin_, work_), "recording an event");
    launch(work_);
    check(cudaEventRecord(end_, work_), "recording an event");
    note_time<<<1, 1, 0, work_>>>(times_ + 1);
    check(cudaDeviceSynchronize(), "running");
    std::vector<ClockSample> samples(kSamples);
    unsigned long long times[2];
    check(cudaMemcpy(samples.data(), samples_, kSamples * sizeof(ClockSample),
                     cudaMemcpyDeviceToHost),
          "copying samples");
    check(cudaMemcpy(times, times_, sizeof(times), cudaMemcpyDeviceToHost), "copying times");
    float milliseconds = 0.0f;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), "reading an event");
    const auto first = static_cast<double>(times[0]);
    const auto last = static_cast<double>(times[1]);
    constexpr double kPerMicrosecond = 1e3;
    return {milliseconds,
            (clock_at(samples, last) - clock_at(samples, first)) / (last - first) * kPerMicrosecond,
            samples.front().nanoseconds <= times[0] && samples.back().nanoseconds >= times[1]};
  }

 private:
  static constexpr int kSamples = 400;
  static constexpr unsigned long long kInterval = 5'000;  // ns
  static constexpr unsigned long long kLead = 500'000;    // ns
  cudaStream_t work_ = nullptr;
  cudaStream_t clock_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  ClockSample* samples_ = nullptr;
  unsigned long long* times_ = nullptr;
};

}  // namespace openvc::benchmarks
