// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu/api_case.hpp"
#include "gpu/attention_fixture.hpp"

// Field case D03: several devices in one process, and tensors of one that is not current.
namespace openvc::test {
namespace {

class ApiCudaDevices : public Sm90Test {
 protected:
  void SetUp() override {
    Sm90Test::SetUp();
    if (IsSkipped()) return;
    for (int i = 0; i < cuda::device_count(); ++i) {
      if (is_hopper(cuda::device_info(i))) devices_.push_back(i);
    }
    if (devices_.size() < 2) GTEST_SKIP() << "one device";
  }

  std::vector<int> devices_;  // that run the kernel
};

/// The tensors of a case and its output in the memory of one device.
class PlacedCase {
 public:
  PlacedCase(const ApiCase& c, int device) : case_(c), device_(device) {
    const cuda::DeviceGuard guard(device);
    tensors_ = std::make_unique<CaseTensors>(c.inputs);
    out_ = std::make_unique<DeviceOutput>(c.problem(), c.inputs.type);
    cuda::check(cudaDeviceSynchronize(), "waiting for the inputs");
  }

  void call(const Execution& execution = {}) const {
    MutableTensorView out = out_->view();
    out.device.index = device_;
    attention(placed(tensors_->device_q), placed(tensors_->device_k), placed(tensors_->device_v),
              out, out_->log_sum_exp(), case_.options(), execution);
  }

  [[nodiscard]] openvc::Prepared prepare() const {
    return openvc::prepare(placed(tensors_->device_q), placed(tensors_->device_k),
                           placed(tensors_->device_v), case_.options(), true);
  }

  void run(const openvc::Prepared& prepared) const {
    MutableTensorView out = out_->view();
    out.device.index = device_;
    attention_prepared(prepared, out, out_->log_sum_exp());
  }

  /// Waits for the device.
  [[nodiscard]] std::vector<std::byte> bytes() const {
    const cuda::DeviceGuard guard(device_);
    cuda::check(cudaDeviceSynchronize(), "running attention");
    EXPECT_EQ(out_->fault(true), "");
    return out_->bytes();
  }

  void clear() {
    const cuda::DeviceGuard guard(device_);
    out_->clear();
    cuda::check(cudaDeviceSynchronize(), "clearing the output");
  }

 private:
  [[nodiscard]] TensorView placed(const DeviceTensor& tensor) const {
    TensorView view = tensor.view();
    view.device.index = device_;
    return view;
  }

  ApiCase case_;
  int device_;
  std::unique_ptr<CaseTensors> tensors_;
  std::unique_ptr<DeviceOutput> out_;
};

int current_device() {
  int device = -1;
  cuda::check(cudaGetDevice(&device), "reading the current device");
  return device;
}

TEST_F(ApiCudaDevices, TensorsOfADeviceThatIsNotCurrent) {
  const ApiCase c = small_case();
  const std::vector<std::byte> expected = expected_bytes(c, CaseTensors(c.inputs));
  for (const int current : devices_) {
    for (const int device : devices_) {
      const PlacedCase placed(c, device);
      const cuda::DeviceGuard guard(current);
      placed.call();
      EXPECT_EQ(current_device(), current) << "the call changed the current device";
      EXPECT_EQ(placed.bytes(), expected) << "device " << device << ", current " << current;
    }
  }
}

// Two threads per device, each with a stream of its own; all of them stay on the first device.
TEST_F(ApiCudaDevices, ConcurrentThreads) {
  const ApiCase c = small_case();
  const std::vector<std::byte> expected = expected_bytes(c, CaseTensors(c.inputs));
  constexpr std::size_t kThreadsPerDevice = 2;
  constexpr int kRuns = 10;
  std::vector<std::string> faults(devices_.size() * kThreadsPerDevice);
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < faults.size(); ++t) {
      threads.emplace_back([&, t] {
        try {
          const int device = devices_[t % devices_.size()];
          PlacedCase placed(c, device);
          const auto stream = [&] {
            const cuda::DeviceGuard guard(device);
            return std::make_unique<Stream>();
          }();
          Execution execution;
          execution.stream = static_cast<cudaStream_t>(*stream);
          for (int run = 0; run < kRuns; ++run) {
            placed.clear();
            placed.call(execution);
            stream->wait();
            if (placed.bytes() != expected) {
              faults[t] = "device " + std::to_string(device) + ", run " + std::to_string(run);
            }
          }
          if (current_device() != 0) faults[t] += " changed the current device";
        } catch (const Error& error) {
          faults[t] = error.what();
        }
      });
    }
  }
  for (const std::string& fault : faults) EXPECT_EQ(fault, "");
}

// The default stream is that of the current device, whose memory it is not.
TEST_F(ApiCudaDevices, PreparedInputsGoBackToTheirDevice) {
  const ApiCase c = small_case();
  const std::vector<std::byte> expected = expected_bytes(c, CaseTensors(c.inputs));
  for (const int device : devices_) {
    const auto used = [device] {
      const cuda::DeviceGuard guard(device);
      cudaMemPool_t pool = nullptr;
      std::uint64_t bytes = 0;
      cuda::check(cudaDeviceSynchronize(), "waiting");
      cuda::check(cudaDeviceGetDefaultMemPool(&pool, device), "finding the memory pool");
      cuda::check(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &bytes),
                  "reading the memory pool");
      return bytes;
    };
    const PlacedCase placed(c, device);
    const std::uint64_t before = used();
    for (const int current : devices_) {
      const cuda::DeviceGuard guard(current);
      {
        const openvc::Prepared prepared = placed.prepare();
        placed.run(prepared);
      }
      placed.call();
      EXPECT_EQ(current_device(), current) << "the call changed the current device";
      EXPECT_EQ(placed.bytes(), expected);
      EXPECT_EQ(used(), before) << "device " << device << ", current " << current;
    }
  }
}

// Prepared inputs belong to the device that they were made on.
TEST_F(ApiCudaDevices, OutputOnAnotherDeviceIsRefused) {
  const ApiCase c = small_case();
  const CaseTensors tensors(c.inputs);
  const auto prepared = prepare(tensors.device_q.view(), tensors.device_k.view(),
                                tensors.device_v.view(), c.options());
  const DeviceOutput out(c.problem(), c.inputs.type);
  MutableTensorView elsewhere = out.view();
  elsewhere.device.index = devices_[1];
  EXPECT_EQ(error_of([&] { attention_prepared(prepared, elsewhere); }).code(),
            ErrorCode::invalid_value);
  cuda::check(cudaDeviceSynchronize(), "waiting for the preparation");
}

}  // namespace
}  // namespace openvc::test
