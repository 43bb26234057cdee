// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

#include "gpu/api_case.hpp"
#include "gpu/attention_fixture.hpp"

// The public interface on CUDA tensors: where memory comes from, where it goes, and what happens
// when there is none.
namespace openvc::test {
namespace {

using ::testing::HasSubstr;

using ApiCudaMemory = Sm90Test;

// Field case A14.
TEST_F(ApiCudaMemory, TakesMemoryFromTheCallersAllocator) {
  const ApiCase c = small_case(0.02);
  const CaseTensors tensors(c.inputs);
  const std::vector<std::byte> expected = expected_bytes(c, tensors);
  // Guarded memory full of NaN: what the call reads it must have written.
  std::atomic<int> alive = 0;
  std::atomic<int> handed_out = 0;
  std::atomic<bool> guards_intact = true;
  Execution execution;
  execution.allocate = [&](std::size_t bytes) {
    ++alive;
    ++handed_out;
    auto buffer = std::make_shared<DeviceBuffer>(bytes, kUnwritten);
    std::byte* data = buffer->data();
    return std::shared_ptr<std::byte>(data, [&, buffer](std::byte*) {
      cudaDeviceSynchronize();
      if (!buffer->guards_untouched()) guards_intact = false;
      --alive;
    });
  };
  const DeviceOutput out(c.problem(), c.inputs.type);
  call_on_device(c, tensors, out, execution);
  cuda::check(cudaDeviceSynchronize(), "running attention");
  EXPECT_EQ(out.bytes(), expected);
  EXPECT_GT(handed_out, 0);
  EXPECT_EQ(alive, 0) << "memory that the call keeps";
  EXPECT_TRUE(guards_intact);
}

TEST_F(ApiCudaMemory, PreparedInputsTellWhatTheyHold) {
  const ApiCase c = small_case();
  const CaseTensors tensors(c.inputs);
  std::size_t handed_out = 0;
  Execution execution;
  execution.allocate = [&](std::size_t bytes) {
    handed_out += bytes;
    auto buffer = std::make_shared<DeviceBuffer>(bytes, kUnwritten);
    return std::shared_ptr<std::byte>(buffer, buffer->data());
  };
  const auto prepared = prepare_repair(tensors.device_q.view(), tensors.device_k.view(),
                                       tensors.device_v.view(), 0.02, c.options(), true, execution);
  EXPECT_EQ(prepared.bytes(), handed_out);
}

// Field case C14.
TEST_F(ApiCudaMemory, ReleasesItsMemory) {
  const ApiCase c = small_case();
  const CaseTensors tensors(c.inputs);
  const std::vector<std::byte> expected = expected_bytes(c, tensors);
  const auto used = [] {
    cudaMemPool_t pool = nullptr;
    std::uint64_t bytes = 0;
    cuda::check(cudaDeviceSynchronize(), "waiting");
    cuda::check(cudaDeviceGetDefaultMemPool(&pool, 0), "finding the memory pool");
    cuda::check(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &bytes),
                "reading the memory pool");
    return bytes;
  };
  const std::uint64_t before = used();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(expected_bytes(c, tensors), expected);
  EXPECT_EQ(used(), before);
}

TEST_F(ApiCudaMemory, RefusesMemoryThatKernelsCannotUse) {
  const ApiCase c = small_case();
  const CaseTensors tensors(c.inputs);
  const DeviceOutput out(c.problem(), c.inputs.type);
  std::shared_ptr<DeviceBuffer> buffer;
  const auto expect_refused = [&](std::ptrdiff_t shift) {
    Execution execution;
    execution.allocate = [&buffer, shift](std::size_t bytes) -> std::shared_ptr<std::byte> {
      if (shift < 0) return nullptr;
      buffer = std::make_shared<DeviceBuffer>(bytes + static_cast<std::size_t>(shift), kUnwritten);
      return {buffer->data() + shift, [](std::byte*) {}};
    };
    try {
      call_on_device(c, tensors, out, execution);
      ADD_FAILURE() << "accepted memory at +" << shift;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_value);
      EXPECT_THAT(error.what(), HasSubstr("execution.allocate"));
      EXPECT_THAT(error.what(), HasSubstr("256"));
    }
  };
  expect_refused(-1);
  expect_refused(16);
  expect_refused(128);
}

/// An allocator that fails from one of its calls on, and what it has handed out.
class FailingAllocator {
 public:
  explicit FailingAllocator(int good_calls) : good_calls_(good_calls) {}

  template <class Failure>
  [[nodiscard]] Execution execution(Failure failure) {
    Execution execution;
    execution.allocate = [this, failure](std::size_t bytes) {
      if (calls_++ >= good_calls_) throw failure;
      ++alive_;
      auto buffer = std::make_shared<DeviceBuffer>(bytes, kUnwritten);
      std::byte* data = buffer->data();
      return std::shared_ptr<std::byte>(data, [this, buffer](std::byte*) { --alive_; });
    };
    return execution;
  }

  [[nodiscard]] int calls() const { return calls_; }
  [[nodiscard]] int alive() const { return alive_; }

 private:
  int good_calls_;
  int calls_ = 0;
  int alive_ = 0;
};

constexpr int kNeverFails = 1000;

// Each allocation of a call in turn, so that what the earlier ones got must go back.
TEST_F(ApiCudaMemory, EveryFailedAllocationIsAnError) {
  for (const double budget : {0.0, 0.02}) {
    const ApiCase c = small_case(budget);
    const CaseTensors tensors(c.inputs);
    const std::vector<std::byte> expected = expected_bytes(c, tensors);
    const DeviceOutput out(c.problem(), c.inputs.type);
    FailingAllocator generous(kNeverFails);
    call_on_device(c, tensors, out, generous.execution(std::bad_alloc()));
    cuda::check(cudaDeviceSynchronize(), "running attention");
    ASSERT_GT(generous.calls(), 0);
    ASSERT_EQ(generous.alive(), 0);
    for (int good = 0; good < generous.calls(); ++good) {
      FailingAllocator allocator(good);
      const DeviceOutput untouched(c.problem(), c.inputs.type);
      const std::vector<std::byte> before = untouched.bytes();
      const Error error = error_of(
          [&] { call_on_device(c, tensors, untouched, allocator.execution(std::bad_alloc())); });
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      EXPECT_THAT(error.what(), HasSubstr("allocation failed"));
      EXPECT_THAT(error.what(), HasSubstr("Free memory"));
      EXPECT_EQ(allocator.alive(), 0) << "memory that the failed call keeps";
      EXPECT_EQ(cudaGetLastError(), cudaSuccess);
      cuda::check(cudaDeviceSynchronize(), "waiting after a failed call");
      EXPECT_EQ(untouched.bytes(), before);
      EXPECT_EQ(expected_bytes(c, tensors), expected);
    }
  }
}

// What an allocator throws reaches the caller as it is.
TEST_F(ApiCudaMemory, ErrorsOfTheCallersAllocatorPass) {
  const ApiCase c = small_case();
  const CaseTensors tensors(c.inputs);
  const DeviceOutput out(c.problem(), c.inputs.type);
  FailingAllocator allocator(0);
  try {
    call_on_device(c, tensors, out, allocator.execution(std::runtime_error("pool exhausted")));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "pool exhausted");
  }
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(expected_bytes(c, tensors).size(), out.bytes().size());
}

TEST_F(ApiCudaMemory, MoreThanTheDeviceHasIsAnError) {
  const ApiCase c = small_case();
  const CaseTensors tensors(c.inputs);
  const std::vector<std::byte> expected = expected_bytes(c, tensors);
  // A single stored head, expanded to more than any device holds.
  TensorView q = tensors.device_q.view();
  q.shape = {1, 300, std::int64_t{1} << 24, numerics::kHeadDim};
  q.strides = {0, 0, 0, 1};
  for (int i = 0; i < 3; ++i) {
    const Error error = error_of([&] { (void)prepare(q, q, q); });
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_THAT(error.what(), HasSubstr("cudaErrorMemoryAllocation"));
    EXPECT_THAT(error.what(), HasSubstr("Free memory"));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(expected_bytes(c, tensors), expected);
  }
}

}  // namespace
}  // namespace openvc::test
