// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu/api_case.hpp"
#include "gpu/attention_fixture.hpp"

// The public interface on CUDA tensors: streams, graphs, threads, refusals.
namespace openvc::test {
namespace {

using ::testing::HasSubstr;

using ApiCudaExecution = Sm90Test;

// Field cases B16 and D10.
TEST_F(ApiCudaExecution, RunsRepeatBitForBit) {
  for (const double budget : {0.0, 0.02}) {
    const ApiCase c = small_case(budget);
    const CaseTensors tensors(c.inputs);
    const std::vector<std::byte> expected = expected_bytes(c, tensors);
    constexpr int kRuns = 20;
    for (int run = 0; run < kRuns; ++run) {
      ASSERT_EQ(expected_bytes(c, tensors), expected) << "run " << run;
    }
  }
}

// Field case D01.
// The inputs arrive on the stream of the call, late.
TEST_F(ApiCudaExecution, RunsOnItsStream) {
  const ApiCase c = small_case();
  ApiCase old = c;
  old.inputs.seed = 77;
  const CaseTensors source(c.inputs);
  CaseTensors tensors(old.inputs);
  const std::vector<std::byte> expected = expected_bytes(c, source);
  const DeviceOutput out(c.problem(), c.inputs.type);
  cuda::check(cudaDeviceSynchronize(), "waiting for the inputs");
  const Stream stream;
  const BusyStream busy(stream, std::chrono::milliseconds(100));
  const auto copy = [&](const DeviceTensor& to, const DeviceTensor& from, const TestTensor& host) {
    const TensorView view = host.view();
    const std::size_t bytes =
        static_cast<std::size_t>(view.shape[0] * view.shape[1] * view.shape[2] * view.shape[3]) *
        element_size(view.type);
    cuda::check(cudaMemcpyAsync(const_cast<void*>(to.view().data), from.view().data, bytes,
                                cudaMemcpyDeviceToDevice, stream),
                "queueing a copy");
  };
  copy(tensors.device_q, source.device_q, source.q);
  copy(tensors.device_k, source.device_k, source.k);
  copy(tensors.device_v, source.device_v, source.v);
  call_on_device(c, tensors, out, {.stream = stream});
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "the call waited for the device";
  stream.wait();
  EXPECT_EQ(out.bytes(), expected);
}

// Field cases D02 and D09.
TEST_F(ApiCudaExecution, GraphReplayReadsNewInputs) {
  for (const double budget : {0.0, 0.02}) {
    ApiCase c = small_case(budget);
    CaseTensors tensors(c.inputs);
    DeviceOutput out(c.problem(), c.inputs.type);
    call_on_device(c, tensors, out);  // first use may allocate what a capture must not
    cuda::check(cudaDeviceSynchronize(), "running attention");
    const Stream stream;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing");
    call_on_device(c, tensors, out, {.stream = stream});
    cuda::check(cudaStreamEndCapture(stream, &graph), "ending the capture");
    cuda::check(cudaGraphInstantiate(&executable, graph, 0), "instantiating a graph");
    for (const std::uint64_t seed : {1, 2, 3}) {
      c.inputs.seed = seed;
      tensors.refill(c.inputs);
      out.clear();
      cuda::check(cudaDeviceSynchronize(), "waiting for the inputs");
      cuda::check(cudaGraphLaunch(executable, stream), "launching a graph");
      stream.wait();
      EXPECT_EQ(out.bytes(), expected_bytes(c, tensors)) << "seed " << seed;
    }
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
}

// Field case D07.
TEST_F(ApiCudaExecution, ConcurrentThreads) {
  const ApiCase c = small_case();
  const CaseTensors tensors(c.inputs);
  const std::vector<std::byte> expected = expected_bytes(c, tensors);
  constexpr int kThreads = 8;
  std::vector<std::string> faults(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const Stream stream;
        DeviceOutput out(c.problem(), c.inputs.type);
        for (int run = 0; run < 10; ++run) {
          out.clear();
          cuda::check(cudaDeviceSynchronize(), "waiting for the output");
          call_on_device(c, tensors, out, {.stream = stream});
          stream.wait();
          if (out.bytes() != expected) faults[t] = "run " + std::to_string(run) + " differs";
        }
      });
    }
  }
  for (const std::string& fault : faults) EXPECT_EQ(fault, "");
}

// ---- refusals -----------------------------------------------------------------------------------

TEST_F(ApiCudaExecution, RefusesWhatItCannotDo) {
  const ApiCase c = small_case();
  const CaseTensors tensors(c.inputs);
  const DeviceOutput out(c.problem(), c.inputs.type);
  const std::vector<std::byte> untouched = out.bytes();
  TensorView q = tensors.device_q.view();
  TensorView k = tensors.device_k.view();
  TensorView v = tensors.device_v.view();

  q.type = k.type = v.type = ElementType::float32;
  Error error = error_of([&] { (void)prepare(q, k, v); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.what(), HasSubstr("float32"));
  EXPECT_FALSE(is_supported(q, k, v));
  q = tensors.device_q.view();
  k = tensors.device_k.view();
  v = tensors.device_v.view();

  k.device = {};
  error = error_of([&] { (void)prepare(q, k, v); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_value);
  EXPECT_THAT(error.what(), HasSubstr("cuda:0, cpu, cuda:0"));
  k.device = q.device;

  q.device.index = k.device.index = v.device.index = 99;
  error = error_of([&] { (void)prepare(q, k, v); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_value);
  EXPECT_THAT(error.what(), HasSubstr("q, k, v: device cuda:99; expected one of the"));
  q.device.index = k.device.index = v.device.index = 0;

  const auto prepared = prepare(q, k, v);
  error = error_of([&] { attention_prepared(prepared, out.view(), out.log_sum_exp()); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_value);
  EXPECT_THAT(error.what(), HasSubstr("log_sum_exp"));
  MutableTensorView wrong = out.view();
  wrong.device = {};
  EXPECT_THAT(error_of([&] { attention_prepared(prepared, wrong); }).what(),
              HasSubstr("out: device cpu; expected cuda:0"));
  wrong = out.view();
  wrong.type = ElementType::float16;
  EXPECT_EQ(error_of([&] { attention_prepared(prepared, wrong); }).code(), ErrorCode::invalid_type);
  AttentionOptions causal;
  causal.mask = Mask::causal;
  EXPECT_EQ(error_of([&] { (void)prepare_repair(q, k, v, 0.1, causal); }).code(),
            ErrorCode::unsupported);
  EXPECT_EQ(out.bytes(), untouched) << "a refused call wrote to its output";

  // A refusal leaves nothing behind.
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  call_on_device(c, tensors, out);
  cuda::check(cudaDeviceSynchronize(), "running attention");
  EXPECT_EQ(out.fault(true), "");
}

}  // namespace
}  // namespace openvc::test
