// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "gpu/attention_fixture.hpp"

// Streams, graphs, repeatability, and faults that must stay where they are.
namespace openvc::test {
namespace {

class Sm90Launch : public Sm90Test {};

AttentionCase with_columns(std::int64_t heads, std::int64_t queries, std::int64_t keys) {
  AttentionCase c = make_case(1, heads, queries, keys);
  c.numerics.rotation = Choice::never;
  c.numerics.score_error_target = 0.0f;
  return c;
}

TEST_F(Sm90Launch, RunsRepeatBitForBit) {
  for (const Mask mask : {Mask::none, Mask::causal}) {
    AttentionCase c = with_columns(5, 2100, 2100);
    c.problem.mask = mask;
    const HostPrepared host(c, make_tensors(c));
    const DevicePrepared device(host);
    DeviceOutput out(c.problem, c.type);
    run_on_device(device.view(), out);
    const std::vector<std::byte> expected = out.bytes();
    constexpr int kRuns = 20;
    for (int run = 0; run < kRuns; ++run) {
      out.clear();
      run_on_device(device.view(), out);
      ASSERT_EQ(out.bytes(), expected) << "run " << run;
    }
  }
}

TEST_F(Sm90Launch, RunsRepeatWhileOthersRun) {
  const AttentionCase c = with_columns(5, 2100, 2100);
  const HostPrepared host(c, make_tensors(c));
  const DevicePrepared device(host);
  DeviceOutput out(c.problem, c.type);
  run_on_device(device.view(), out);
  const std::vector<std::byte> expected = out.bytes();

  const AttentionCase other = make_case(1, 3, 1500, 3000);
  const DevicePrepared other_device(HostPrepared(other, make_tensors(other, "gaussian", 2)));
  DeviceOutput other_out(other.problem, other.type);
  run_on_device(other_device.view(), other_out);
  const std::vector<std::byte> other_expected = other_out.bytes();

  const Stream stream;
  const Stream other_stream;
  constexpr int kRuns = 20;
  for (int run = 0; run < kRuns; ++run) {
    out.clear();
    other_out.clear();
    cuda::check(cudaDeviceSynchronize(), "waiting for cleared outputs");
    constexpr int kOverlapping = 4;
    for (int i = 0; i < kOverlapping; ++i) {
      cuda::sm90::launch(other_device.view(), other_out.view(), other_out.log_sum_exp(),
                         other_stream);
      cuda::sm90::launch(device.view(), out.view(), out.log_sum_exp(), stream);
    }
    stream.wait();
    other_stream.wait();
    ASSERT_EQ(out.bytes(), expected) << "run " << run;
    ASSERT_EQ(other_out.bytes(), other_expected) << "run " << run;
  }
}

TEST_F(Sm90Launch, ConcurrentThreads) {
  const AttentionCase c = with_columns(3, 600, 900);
  const HostPrepared host(c, make_tensors(c));
  const DevicePrepared device(host);
  DeviceOutput reference(c.problem, c.type);
  run_on_device(device.view(), reference);
  const std::vector<std::byte> expected = reference.bytes();
  constexpr int kThreads = 8;
  std::vector<std::string> faults(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const Stream stream;
        DeviceOutput out(c.problem, c.type);
        cuda::check(cudaDeviceSynchronize(), "waiting for the output");
        for (int run = 0; run < 20; ++run) {
          run_on_device(device.view(), out, true, stream);
          if (out.bytes() != expected) faults[t] = "run " + std::to_string(run) + " differs";
        }
      });
    }
  }
  for (const std::string& fault : faults) EXPECT_EQ(fault, "");
}

// The inputs arrive on the stream of the launch, late: a launch elsewhere would read the old ones.
TEST_F(Sm90Launch, RunsOnItsStream) {
  const AttentionCase c = with_columns(2, 700, 900);
  const HostPrepared old_inputs(c, make_tensors(c, "gaussian", 1));
  const HostPrepared new_inputs(c, make_tensors(c, "gaussian", 2));
  const DevicePrepared source(new_inputs);
  DeviceOutput out(c.problem, c.type);
  run_on_device(source.view(), out);
  const std::vector<std::byte> expected = out.bytes();

  const DevicePrepared device(old_inputs);
  out.clear();
  cuda::check(cudaDeviceSynchronize(), "waiting for the inputs");
  const Stream stream;
  const BusyStream busy(stream, std::chrono::milliseconds(100));
  cuda::check(cudaMemcpyAsync(device.data(), source.data(), device.view().layout.bytes,
                              cudaMemcpyDeviceToDevice, stream),
              "queueing a copy");
  cuda::sm90::launch(device.view(), out.view(), out.log_sum_exp(), stream);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "the launch waited";
  stream.wait();
  EXPECT_EQ(out.bytes(), expected);
}

TEST_F(Sm90Launch, GraphReplayReadsNewInputs) {
  for (const Mask mask : {Mask::none, Mask::causal}) {
    AttentionCase c = with_columns(3, 700, 900);
    c.problem.mask = mask;
    const HostPrepared first(c, make_tensors(c));
    DevicePrepared device(first);
    DeviceOutput out(c.problem, c.type);
    cuda::check(cudaDeviceSynchronize(), "waiting for the inputs");
    const Stream stream;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capturing");
    cuda::sm90::launch(device.view(), out.view(), out.log_sum_exp(), stream);
    cuda::check(cudaStreamEndCapture(stream, &graph), "ending the capture");
    cuda::check(cudaGraphInstantiate(&executable, graph, 0), "instantiating a graph");
    for (const std::uint64_t seed : {1, 2, 3}) {
      const HostPrepared host(c, make_tensors(c, "gaussian", seed));
      device.upload(host);
      out.clear();
      cuda::check(cudaDeviceSynchronize(), "waiting for the inputs");
      cuda::check(cudaGraphLaunch(executable, stream), "launching a graph");
      stream.wait();
      EXPECT_EQ(out.fault(true), "");
      EXPECT_EQ(disagreement(c.problem, out.read(), run_on_cpu(host, c.type), {.flipped = 0.08}),
                "")
          << "seed " << seed;
      DeviceOutput direct(c.problem, c.type);
      run_on_device(device.view(), direct);
      EXPECT_EQ(out.bytes(), direct.bytes()) << "seed " << seed;
    }
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
}

// The kernel is launched so that it may overlap with a kernel before it. Here other things come
// before: a copy in its own stream, and a stream that an event joins.
TEST_F(Sm90Launch, WaitsForCopiesAndEvents) {
  const AttentionCase c = with_columns(3, 700, 900);
  const HostPrepared host(c, make_tensors(c));
  const DevicePrepared source(host);
  DeviceOutput expected(c.problem, c.type);
  run_on_device(source.view(), expected);
  const std::size_t bytes = host.view().layout.bytes;
  for (const bool other_stream : {false, true}) {
    for (const bool captured : {false, true}) {
      SCOPED_TRACE((other_stream ? "event, " : "copy, ") +
                   std::string(captured ? "captured" : "direct"));
      const DevicePrepared device(HostPrepared(c, make_tensors(c, "gaussian", 7)));
      DeviceOutput out(c.problem, c.type);
      cuda::check(cudaDeviceSynchronize(), "waiting for the inputs");
      const Stream stream;
      const Stream copying;
      cudaEvent_t begin = nullptr;
      cudaEvent_t end = nullptr;
      cuda::check(cudaEventCreateWithFlags(&begin, cudaEventDisableTiming), "creating an event");
      cuda::check(cudaEventCreateWithFlags(&end, cudaEventDisableTiming), "creating an event");
      const auto queue = [&] {
        cudaStream_t copies = stream;
        if (other_stream) {
          copies = copying;
          cuda::check(cudaEventRecord(begin, stream), "recording");
          cuda::check(cudaStreamWaitEvent(copies, begin, 0), "forking");
        }
        // Long enough to be overtaken: zeros, and then what the kernel shall read.
        constexpr int kClears = 50;
        for (int i = 0; i < kClears; ++i) {
          cuda::check(cudaMemsetAsync(device.data(), 0, bytes, copies), "clearing");
        }
        cuda::check(
            cudaMemcpyAsync(device.data(), source.data(), bytes, cudaMemcpyDeviceToDevice, copies),
            "copying");
        if (other_stream) {
          cuda::check(cudaEventRecord(end, copies), "recording");
          cuda::check(cudaStreamWaitEvent(stream, end, 0), "joining");
        }
        cuda::sm90::launch(device.view(), out.view(), out.log_sum_exp(), stream);
      };
      if (captured) {
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t executable = nullptr;
        cuda::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capturing");
        queue();
        cuda::check(cudaStreamEndCapture(stream, &graph), "ending the capture");
        cuda::check(cudaGraphInstantiate(&executable, graph, 0), "instantiating a graph");
        cuda::check(cudaGraphLaunch(executable, stream), "launching a graph");
        stream.wait();
        cudaGraphExecDestroy(executable);
        cudaGraphDestroy(graph);
      } else {
        queue();
        stream.wait();
      }
      EXPECT_EQ(out.bytes(), expected.bytes());
      cudaEventDestroy(begin);
      cudaEventDestroy(end);
    }
  }
}

// ---- non-finite inputs --------------------------------------------------------------------------

enum class Place { query, key, value };

/// One element of head 1 is not finite: that head shows it, the others do not change by a bit.
void expect_contained(const AttentionCase& c, Place place, float fault) {
  study::Tensors tensors = make_tensors(c);
  const HostPrepared healthy(c, tensors);
  const DevicePrepared healthy_device(healthy);
  DeviceOutput expected(c.problem, c.type);
  run_on_device(healthy_device.view(), expected);

  study::OwnedTensor& tensor = place == Place::query ? tensors.q
                               : place == Place::key ? tensors.k
                                                     : tensors.v;
  transform(tensor, [&](auto, std::int64_t s, std::int64_t h, std::int64_t channel, float x) {
    return s == 3 && h == 1 && channel == 5 ? fault : x;
  });
  // Rounding to the element type saturates: an infinity has to be stored by its bits.
  if (std::isinf(fault)) {
    const std::int64_t at = (3 * c.problem.heads + 1) * numerics::kHeadDim + 5;
    const std::uint16_t bits = numerics::float_to_bfloat16(fault);
    std::memcpy(tensor.bytes.data() + at * 2, &bits, sizeof(bits));
  }
  const HostPrepared host(c, tensors);
  const DevicePrepared device(host);
  DeviceOutput out(c.problem, c.type);
  run_on_device(device.view(), out);
  const AttentionResult result = out.read();
  const AttentionResult reference = run_on_cpu(host, c.type);
  const AttentionResult before = expected.read();
  std::int64_t visible = 0;
  for (std::int64_t bh = 0; bh < c.problem.heads; ++bh) {
    for (std::int64_t i = 0; i < c.problem.queries; ++i) {
      const auto row = output_row(c.problem, result.output, bh, i);
      const auto cpu_row = output_row(c.problem, reference.output, bh, i);
      const auto healthy_row = output_row(c.problem, before.output, bh, i);
      for (std::size_t channel = 0; channel < row.size(); ++channel) {
        if (bh != 1) {
          ASSERT_EQ(row[channel], healthy_row[channel]) << "head " << bh << " row " << i;
        } else {
          ASSERT_EQ(std::isfinite(row[channel]), std::isfinite(cpu_row[channel]))
              << "row " << i << " channel " << channel;
          visible += !std::isfinite(row[channel]);
        }
      }
    }
  }
  EXPECT_GT(visible, 0) << "the fault left no trace";
}

TEST_F(Sm90Launch, NonFiniteInputsStayInTheirHead) {
  for (const Place place : {Place::query, Place::key, Place::value}) {
    for (const float fault :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      SCOPED_TRACE("tensor " + std::to_string(static_cast<int>(place)) + " value " +
                   std::to_string(fault));
      expect_contained(make_case(1, 3, 300, 500), place, fault);
      expect_contained(make_case(1, 3, 300, 500, Mask::causal), place, fault);
      expect_contained(with_columns(3, 129, 130), place, fault);
    }
  }
}

TEST_F(Sm90Launch, WholeTensorsOfNanDoNotHang) {
  const AttentionCase c = make_case(1, 2, 400, 600);
  study::Tensors tensors = make_tensors(c);
  for (study::OwnedTensor* tensor : {&tensors.q, &tensors.k, &tensors.v}) {
    transform(*tensor, [](auto, auto, auto, auto, float) { return numerics::quiet_nan(); });
  }
  const HostPrepared host(c, tensors);
  const DevicePrepared device(host);
  DeviceOutput out(c.problem, c.type);
  run_on_device(device.view(), out);
  EXPECT_EQ(out.fault(true), "");
  for (const float x : out.read().output) ASSERT_TRUE(std::isnan(x));
}

}  // namespace
}  // namespace openvc::test
