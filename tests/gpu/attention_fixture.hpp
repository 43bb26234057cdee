// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/sm90/launch.hpp"
#include "gpu/agreement.hpp"
#include "gpu/attention_pair.hpp"

namespace openvc::test {

/// Whether a device runs the Hopper kernel.
inline bool is_hopper(const cuda::DeviceInfo& device) {
  return device.major == 9 && device.minor == 0;
}

/// The kernels that the small tests run, where a device can.
inline constexpr const AttentionKernel* kSmallKernels[] = {&kHopper, &kAda};

/// Skips on machines whose first device cannot run the Hopper kernel.
class Sm90Test : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
    if (!is_hopper(cuda::device_info(0))) GTEST_SKIP() << "the first device is no Hopper GPU";
  }

  /// Both backends on one set of prepared inputs: agreement, guards, every element written.
  static void expect_agreement(const AttentionCase& c, const study::Tensors& tensors,
                               const Bounds& bounds = {}) {
    SCOPED_TRACE(c.describe());
    const HostPrepared host(c, tensors);
    const DevicePrepared device(host);
    DeviceOutput out(c.problem, c.type);
    run_on_device(device.view(), out, true, nullptr, *c.kernel);
    EXPECT_EQ(out.fault(true), "");
    EXPECT_TRUE(device.guards_untouched());
    EXPECT_EQ(disagreement(c.seen(), out.read(), run_on_cpu(host, c.type), bounds), "");
  }

  static void expect_agreement(const AttentionCase& c, const Bounds& bounds = {}) {
    expect_agreement(c, make_tensors(c), bounds);
  }
};

class Stream {
 public:
  Stream() {
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
  }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT(google-explicit-constructor)

  void wait() const { cuda::check(cudaStreamSynchronize(stream_), "waiting for a stream"); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Keeps a stream busy for a while: whatever is queued behind waits. Outlives what it delays.
class BusyStream {
 public:
  BusyStream(cudaStream_t stream, std::chrono::milliseconds duration) : duration_(duration) {
    cuda::check(cudaLaunchHostFunc(
                    stream,
                    [](void* self) {
                      std::this_thread::sleep_for(static_cast<BusyStream*>(self)->duration_);
                    },
                    this),
                "queueing a host function");
  }
  BusyStream(const BusyStream&) = delete;
  BusyStream& operator=(const BusyStream&) = delete;

 private:
  std::chrono::milliseconds duration_;
};

}  // namespace openvc::test
