// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "api/backend.hpp"
#include "cuda/check/find_non_finite.hpp"
#include "gpu/api_case.hpp"
#include "gpu/attention_fixture.hpp"

// Field case B10: OPEN_VC_ATTN_CHECK=1 names the first tensor and element that is not finite.
namespace openvc::test {
namespace {

using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class FindNonFinite : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }

  static std::int64_t on_device(const TestTensor& tensor, std::size_t shift = 0) {
    const DeviceTensor device(tensor, shift);
    cuda::check(cudaDeviceSynchronize(), "waiting for the tensor");
    return cuda::find_non_finite(device.view(), {});
  }

  static std::int64_t on_cpu(const TestTensor& tensor) {
    return api::kCpuBackend.find_non_finite(tensor.view(), {});
  }
};

TestTensor random_tensor(ElementType type, const Shape& shape, Layout layout, std::uint64_t seed) {
  TestTensor tensor(type, shape, make_strides(layout, shape));
  tensor.fill_normal(seed);
  return tensor;
}

// NaN fills the memory around the elements: what is read beside them is found.
TEST_F(FindNonFinite, EqualsTheCpuWhateverTheStrides) {
  Random random(5);
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(limit));
  };
  for (const ElementType type : {ElementType::bfloat16, ElementType::float16}) {
    for (const Layout layout : kLayouts) {
      for (const std::size_t shift : {0, 2, 6}) {
        const Shape shape{2, 301, 3, numerics::kHeadDim};
        SCOPED_TRACE(std::string(element_name(type)) + " layout " +
                     std::to_string(static_cast<int>(layout)) + " shift " + std::to_string(shift));
        TestTensor tensor = random_tensor(type, shape, layout, random.next());
        EXPECT_EQ(on_device(tensor, shift), -1);
        // Each next one becomes the answer or leaves it as it is.
        for (const float bad : {kNan, kInfinity, -kInfinity}) {
          tensor.set(below(shape[0]), below(shape[1]), below(shape[2]), below(shape[3]), bad);
          const std::int64_t expected = on_cpu(tensor);
          ASSERT_GE(expected, 0);
          EXPECT_EQ(on_device(tensor, shift), expected);
        }
      }
    }
  }
}

TEST_F(FindNonFinite, FirstAndLastElements) {
  const Shape shape{2, 100, 3, numerics::kHeadDim};
  TestTensor tensor = random_tensor(ElementType::bfloat16, shape, Layout::contiguous, 1);
  tensor.set(1, 99, 2, 127, kNan);
  EXPECT_EQ(on_device(tensor), 2 * 100 * 3 * 128 - 1);
  tensor.set(0, 0, 0, 0, kInfinity);
  EXPECT_EQ(on_device(tensor), 0);
}

TEST_F(FindNonFinite, LargestFiniteNumbersAreFinite) {
  for (const ElementType type : {ElementType::bfloat16, ElementType::float16}) {
    TestTensor tensor(type, {1, 3, 2, numerics::kHeadDim});
    const float largest = type == ElementType::float16 ? 65504.0f : 3.3895314e38f;
    tensor.fill([&](auto, auto, auto, std::int64_t c) { return c % 2 == 0 ? largest : -largest; });
    EXPECT_EQ(on_device(tensor), -1);
  }
}

// Thousands of warps find something; the answer is always the first of all.
TEST_F(FindNonFinite, IsTheSameInEveryRun) {
  TestTensor tensor =
      random_tensor(ElementType::bfloat16, {2, 2000, 4, numerics::kHeadDim}, Layout::contiguous, 2);
  for (std::int64_t s = 701; s < 2000; ++s) tensor.set(0, s, s % 4, s % 128, kNan);
  const std::int64_t expected = on_cpu(tensor);
  const DeviceTensor device(tensor, 0);
  cuda::check(cudaDeviceSynchronize(), "waiting for the tensor");
  constexpr int kRuns = 50;
  for (int run = 0; run < kRuns; ++run) {
    ASSERT_EQ(cuda::find_non_finite(device.view(), {}), expected) << "run " << run;
  }
}

// The element arrives on the stream of the call, late.
TEST_F(FindNonFinite, LooksBehindWhatIsQueued) {
  const Shape shape{1, 50, 2, numerics::kHeadDim};
  TestTensor tensor = random_tensor(ElementType::bfloat16, shape, Layout::contiguous, 3);
  DeviceTensor target(tensor, 0);
  tensor.set(0, 17, 1, 5, kNan);
  const DeviceTensor source(tensor, 0);
  cuda::check(cudaDeviceSynchronize(), "waiting for the tensors");
  const Stream stream;
  const BusyStream busy(stream, std::chrono::milliseconds(50));
  cuda::check(
      cudaMemcpyAsync(const_cast<void*>(target.view().data), source.view().data,
                      static_cast<std::size_t>(50 * 2 * 128) * 2, cudaMemcpyDeviceToDevice, stream),
      "queueing a copy");
  Execution execution;
  execution.stream = stream;
  EXPECT_EQ(cuda::find_non_finite(target.view(), execution), (17 * 2 + 1) * 128 + 5);
}

TEST_F(FindNonFinite, TakesMemoryFromTheCallersAllocator) {
  const DeviceTensor tensor(
      random_tensor(ElementType::float16, {1, 5, 2, numerics::kHeadDim}, Layout::contiguous, 4), 0);
  cuda::check(cudaDeviceSynchronize(), "waiting for the tensor");
  int handed_out = 0;
  Execution execution;
  execution.allocate = [&](std::size_t bytes) {
    ++handed_out;
    auto buffer = std::make_shared<DeviceBuffer>(bytes, kUnwritten);
    return std::shared_ptr<std::byte>(buffer, buffer->data());
  };
  EXPECT_EQ(cuda::find_non_finite(tensor.view(), execution), -1);
  EXPECT_EQ(handed_out, 1);
}

TEST_F(FindNonFinite, RefusesACaptureAndLeavesItValid) {
  const DeviceTensor tensor(
      random_tensor(ElementType::bfloat16, {1, 5, 2, numerics::kHeadDim}, Layout::contiguous, 4),
      0);
  const Stream stream;
  Execution execution;
  execution.stream = stream;
  cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
  try {
    (void)cuda::find_non_finite(tensor.view(), execution);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("captured into a CUDA graph"));
  }
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphDestroy(graph);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cuda::find_non_finite(tensor.view(), execution), -1);
}

TEST_F(FindNonFinite, OffsetsBeyond32Bits) {
  constexpr std::int64_t kTokens = 100;
  const std::int64_t batch_stride = (std::int64_t{1} << 32) + 3;
  const auto half = static_cast<std::size_t>(kTokens * numerics::kHeadDim) * 2;
  const auto bytes = static_cast<std::size_t>(batch_stride) * 2 + half;
  std::size_t free = 0;
  std::size_t total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "asking for free memory");
  if (free < bytes + bytes / 8) GTEST_SKIP() << "needs " << bytes << " bytes of device memory";
  DeviceBuffer storage(bytes, 0xFF);
  std::vector<std::byte> zeros(half);
  storage.upload(zeros.data(), half);
  storage.upload(zeros.data(), half, bytes - half);
  TensorView view;
  view.data = storage.data();
  view.device = {DeviceType::cuda, 0};
  view.shape = {2, kTokens, 1, numerics::kHeadDim};
  view.strides = {batch_stride, numerics::kHeadDim, 0, 1};
  EXPECT_EQ(cuda::find_non_finite(view, {}), -1);
  const std::uint16_t nan = 0x7FC0;
  storage.upload(&nan, sizeof(nan), bytes - sizeof(nan));
  EXPECT_EQ(cuda::find_non_finite(view, {}), 2 * kTokens * numerics::kHeadDim - 1);
}

// ---- through the public call --------------------------------------------------------------------

/// What a call of a process with the variable says. The variable is read once per process.
[[noreturn]] void report_and_exit(bool with_fault, bool in_capture) {
  setenv("OPEN_VC_ATTN_CHECK", "1", 1);
  ApiCase c;
  c.inputs.batch = 2;
  CaseTensors tensors(c.inputs);
  if (with_fault) {
    tensors.v.set(0, 0, 0, 0, kInfinity);
    tensors.k.set(1, 7, 1, 99, kNan);
    tensors.device_v.upload(tensors.v);
    tensors.device_k.upload(tensors.k);
  }
  const DeviceOutput out(c.problem(), c.inputs.type);
  cuda::check(cudaDeviceSynchronize(), "waiting for the inputs");
  const Stream stream;
  if (in_capture) {
    cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
  }
  try {
    call_on_device(c, tensors, out, {.stream = stream});
    std::fputs("no error", stderr);
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
  }
  std::exit(0);
}

using ApiCudaCheckDeathTest = Sm90Test;

TEST_F(ApiCudaCheckDeathTest, NamesTheFirstNonFiniteTensor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(report_and_exit(false, false), testing::ExitedWithCode(0), "no error");
  EXPECT_EXIT(report_and_exit(true, false), testing::ExitedWithCode(0),
              "k: element .1, 7, 1, 99. is not finite.*OPEN_VC_ATTN_CHECK=1");
  EXPECT_EXIT(report_and_exit(true, true), testing::ExitedWithCode(0),
              "captured into a CUDA graph");
}

}  // namespace
}  // namespace openvc::test
