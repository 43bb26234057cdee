// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/api_case.hpp"
#include "gpu/attention_fixture.hpp"

// Prepared inputs on other streams than their own, dropped early, and outliving their streams.
namespace openvc::test {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kDelay{100};

class ApiCudaStreams : public Sm90Test {
 protected:
  void SetUp() override {
    Sm90Test::SetUp();
    if (IsSkipped()) return;
    tensors_ = std::make_unique<CaseTensors>(case_.inputs);
    expected_ = expected_bytes(case_, *tensors_);
    wait_for_device();
    // Freed memory stays in the pool, where poison() finds it.
    cuda::check(cudaDeviceGetDefaultMemPool(&pool_, 0), "finding the memory pool");
    set_release_threshold(~std::uint64_t{0});
    poison();
  }

  void TearDown() override {
    if (pool_ != nullptr) set_release_threshold(0);  // CUDA's default
  }

  static void wait_for_device() { cuda::check(cudaDeviceSynchronize(), "waiting"); }

  /// Takes memory from `buffer` where there is one.
  [[nodiscard]] openvc::Prepared prepare_on(cudaStream_t stream,
                                            const std::shared_ptr<DeviceBuffer>& buffer = nullptr) {
    Execution execution;
    execution.stream = stream;
    if (buffer != nullptr) {
      execution.allocate = [buffer](std::size_t bytes) {
        EXPECT_LE(bytes, buffer->size());
        return std::shared_ptr<std::byte>(buffer, buffer->data());
      };
    }
    return prepare_repair(tensors_->device_q.view(), tensors_->device_k.view(),
                          tensors_->device_v.view(), 0.02, case_.options(), true, execution);
  }

  static void run_on(const openvc::Prepared& prepared, const DeviceOutput& out,
                     cudaStream_t stream) {
    attention_prepared(prepared, out.view(), out.log_sum_exp(), {.stream = stream});
  }

  /// Overwrites what the memory pool of cudaMallocAsync has free: who reads memory too early or too
  /// late finds NaN. Runs on a stream of its own, behind nothing.
  static void poison() {
    constexpr int kBlocks = 16;
    const Stream stream;
    std::vector<void*> blocks(kBlocks);
    for (void*& block : blocks) {
      cuda::check(cudaMallocAsync(&block, kBlockBytes, stream), "taking memory");
      cuda::check(cudaMemsetAsync(block, kUnwritten, kBlockBytes, stream), "poisoning memory");
    }
    for (void* block : blocks) cuda::check(cudaFreeAsync(block, stream), "giving memory back");
    stream.wait();
  }

  [[nodiscard]] std::uint64_t used_memory() const {
    std::uint64_t bytes = 0;
    wait_for_device();
    cuda::check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &bytes),
                "reading the memory pool");
    return bytes;
  }

  static constexpr std::size_t kBlockBytes = std::size_t{4} << 20;  // the small case needs 2 MiB

 private:
  void set_release_threshold(std::uint64_t bytes) const {
    cuda::check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &bytes),
                "configuring the memory pool");
  }

  cudaMemPool_t pool_ = nullptr;

 protected:
  ApiCase case_ = small_case(0.02);
  std::unique_ptr<CaseTensors> tensors_;
  std::vector<std::byte> expected_;
};

TEST_F(ApiCudaStreams, AnotherStreamWaitsForThePreparation) {
  const auto buffer = std::make_shared<DeviceBuffer>(kBlockBytes, kUnwritten);
  for (const auto& memory : {std::shared_ptr<DeviceBuffer>(), buffer}) {
    const DeviceOutput out(case_.problem(), case_.inputs.type);
    poison();
    wait_for_device();
    const Stream preparing;
    const Stream running;
    const BusyStream busy(preparing, kDelay);
    const openvc::Prepared prepared = prepare_on(preparing, memory);
    run_on(prepared, out, running);
    EXPECT_EQ(cudaStreamQuery(preparing), cudaErrorNotReady) << "the calls waited on the host";
    running.wait();
    EXPECT_EQ(out.bytes(), expected_);
    wait_for_device();
  }
}

TEST_F(ApiCudaStreams, DroppedWhileStreamsReadIt) {
  const std::uint64_t before = used_memory();
  for (const bool same_stream : {true, false}) {
    const DeviceOutput out(case_.problem(), case_.inputs.type);
    wait_for_device();
    const Stream preparing;
    const Stream other;
    const cudaStream_t running = same_stream ? preparing : other;
    std::optional<openvc::Prepared> prepared = prepare_on(preparing);
    wait_for_device();
    const BusyStream busy(running, kDelay);
    run_on(*prepared, out, running);
    prepared.reset();
    EXPECT_EQ(cudaStreamQuery(running), cudaErrorNotReady) << "the drop waited on the host";
    // The stream of the preparation goes on; memory that it gets must not be that of the reader.
    if (!same_stream) {
      void* block = nullptr;
      cuda::check(cudaMallocAsync(&block, kBlockBytes / 2, preparing), "taking memory");
      cuda::check(cudaMemsetAsync(block, kUnwritten, kBlockBytes / 2, preparing), "writing");
      cuda::check(cudaFreeAsync(block, preparing), "giving memory back");
    }
    wait_for_device();
    EXPECT_EQ(out.bytes(), expected_) << (same_stream ? "same stream" : "other stream");
  }
  EXPECT_EQ(used_memory(), before) << "memory that nobody has freed";
}

// A destroyed stream finishes its work, but nobody may name it any more.
TEST_F(ApiCudaStreams, OutlivesTheStreamOfItsPreparation) {
  const std::uint64_t before = used_memory();
  for (const bool used_before : {false, true}) {
    const DeviceOutput early(case_.problem(), case_.inputs.type);
    const DeviceOutput out(case_.problem(), case_.inputs.type);
    wait_for_device();
    const Stream running;
    auto preparing = std::make_unique<Stream>();
    const BusyStream busy(*preparing, kDelay);
    std::optional<openvc::Prepared> prepared = prepare_on(*preparing);
    if (used_before) run_on(*prepared, early, *preparing);
    preparing.reset();
    const Stream perhaps_the_same_handle;
    run_on(*prepared, out, perhaps_the_same_handle);
    const auto host = prepare_repair(tensors_->q.view(), tensors_->k.view(), tensors_->v.view(),
                                     0.02, case_.options(), true);
    ASSERT_EQ(prepared->plans().size(), host.plans().size());
    for (std::size_t i = 0; i < host.plans().size(); ++i) {
      EXPECT_EQ(prepared->plans()[i].extra_steps, host.plans()[i].extra_steps) << "head " << i;
      EXPECT_EQ(prepared->plans()[i].score_exponent, host.plans()[i].score_exponent);
    }
    prepared.reset();
    poison();
    wait_for_device();
    EXPECT_EQ(out.bytes(), expected_);
    if (used_before) {
      EXPECT_EQ(early.bytes(), expected_);
    }
  }
  EXPECT_EQ(used_memory(), before) << "memory that nobody has freed";
}

TEST_F(ApiCudaStreams, OutlivesTheStreamsOfItsUses) {
  const std::uint64_t before = used_memory();
  const DeviceOutput out(case_.problem(), case_.inputs.type);
  wait_for_device();
  std::optional<openvc::Prepared> prepared = prepare_on(nullptr);
  wait_for_device();
  auto running = std::make_unique<Stream>();
  const BusyStream busy(*running, kDelay);
  run_on(*prepared, out, *running);
  running.reset();
  prepared.reset();
  poison();
  wait_for_device();
  EXPECT_EQ(out.bytes(), expected_);
  EXPECT_EQ(used_memory(), before) << "memory that nobody has freed";
}

TEST_F(ApiCudaStreams, ManyThreadsAndStreamsThenGone) {
  constexpr int kThreads = 8;
  constexpr int kRuns = 5;
  std::vector<std::unique_ptr<DeviceOutput>> outputs;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int t = 0; t < kThreads; ++t) {
    outputs.push_back(std::make_unique<DeviceOutput>(case_.problem(), case_.inputs.type));
    streams.push_back(std::make_unique<Stream>());
  }
  wait_for_device();
  const Stream preparing;
  const BusyStream busy(preparing, kDelay);
  {
    const openvc::Prepared prepared = prepare_on(preparing);
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const auto index = static_cast<std::size_t>(t);
        for (int run = 0; run < kRuns; ++run) {
          run_on(prepared, *outputs[index], *streams[index / 2]);  // two threads share a stream
        }
      });
    }
  }
  poison();
  wait_for_device();
  for (const auto& out : outputs) EXPECT_EQ(out->bytes(), expected_);
}

// ---- memory of the caller's allocator -----------------------------------------------------------

TEST_F(ApiCudaStreams, AllocatorLearnsOfOtherStreams) {
  const DeviceOutput out(case_.problem(), case_.inputs.type);
  wait_for_device();
  const Stream preparing;
  const Stream running;
  const std::byte* block = nullptr;
  Execution execution;
  execution.stream = preparing;
  execution.allocate = [&block](std::size_t bytes) {
    const auto buffer = std::make_shared<DeviceBuffer>(bytes, kUnwritten);
    block = buffer->data();
    return std::shared_ptr<std::byte>(buffer, buffer->data());
  };
  std::optional<openvc::Prepared> prepared =
      prepare(tensors_->device_q.view(), tensors_->device_k.view(), tensors_->device_v.view(),
              case_.options(), true, execution);
  int recorded = 0;
  execution.record_use = [&](const std::shared_ptr<std::byte>& memory) {
    EXPECT_EQ(memory.get(), block);
    ++recorded;
  };
  attention_prepared(*prepared, out.view(), nullptr, execution);
  EXPECT_EQ(recorded, 0) << "its own stream";
  execution.stream = running;
  attention_prepared(*prepared, out.view(), nullptr, execution);
  attention_prepared(*prepared, out.view(), nullptr, execution);
  EXPECT_EQ(recorded, 2);
  wait_for_device();
}

// An allocator that is not told gets its memory back when other streams have ended.
TEST_F(ApiCudaStreams, OwnerWaitsForOtherStreams) {
  const DeviceOutput out(case_.problem(), case_.inputs.type);
  wait_for_device();
  const Stream preparing;
  const Stream running;
  std::atomic<bool> released = false;
  cudaError_t state = cudaErrorUnknown;
  Execution execution;
  execution.stream = preparing;
  execution.allocate = [&](std::size_t bytes) {
    const auto buffer = std::make_shared<DeviceBuffer>(bytes, kUnwritten);
    return std::shared_ptr<std::byte>(buffer->data(), [&, buffer](std::byte*) {
      // A stream may call itself busy for a moment after its last event.
      constexpr int kPolls = 20;
      for (int poll = 0; poll < kPolls; ++poll) {
        state = cudaStreamQuery(running);
        if (state == cudaSuccess) break;
        std::this_thread::sleep_for(kDelay / (5 * kPolls));
      }
      released = true;
    });
  };
  std::optional<openvc::Prepared> prepared =
      prepare_repair(tensors_->device_q.view(), tensors_->device_k.view(),
                     tensors_->device_v.view(), 0.02, case_.options(), true, execution);
  wait_for_device();
  const BusyStream busy(running, kDelay);
  run_on(*prepared, out, running);
  EXPECT_EQ(cudaStreamQuery(running), cudaErrorNotReady);
  prepared.reset();
  EXPECT_TRUE(released);
  EXPECT_EQ(state, cudaSuccess) << "released while a stream reads it";
  EXPECT_EQ(out.bytes(), expected_);
}

// ---- graphs -------------------------------------------------------------------------------------

/// A graph from what `work` queues on a stream, and its launches.
class Graph {
 public:
  template <class Work>
  Graph(cudaStream_t stream, cudaStreamCaptureMode mode, const Work& work) {
    cuda::check(cudaStreamBeginCapture(stream, mode), "capturing");
    work();
    cuda::check(cudaStreamEndCapture(stream, &graph_), "ending the capture");
    cuda::check(cudaGraphInstantiate(&executable_, graph_, 0), "instantiating a graph");
  }
  ~Graph() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(cudaStream_t stream) const {
    cuda::check(cudaGraphLaunch(executable_, stream), "launching a graph");
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

class ApiCudaGraphs : public ApiCudaStreams,
                      public testing::WithParamInterface<cudaStreamCaptureMode> {};

INSTANTIATE_TEST_SUITE_P(Modes, ApiCudaGraphs,
                         testing::Values(cudaStreamCaptureModeGlobal,
                                         cudaStreamCaptureModeThreadLocal,
                                         cudaStreamCaptureModeRelaxed),
                         [](const testing::TestParamInfo<cudaStreamCaptureMode>& mode) {
                           return std::string(mode.param == cudaStreamCaptureModeGlobal ? "Global"
                                              : mode.param == cudaStreamCaptureModeThreadLocal
                                                  ? "ThreadLocal"
                                                  : "Relaxed");
                         });

TEST_P(ApiCudaGraphs, InputsPreparedBeforeTheCapture) {
  for (const bool same_stream : {true, false}) {
    DeviceOutput out(case_.problem(), case_.inputs.type);
    wait_for_device();
    const Stream preparing;
    const Stream other;
    const Stream replaying;
    const cudaStream_t captured = same_stream ? preparing : other;
    const BusyStream busy(preparing, kDelay);
    const openvc::Prepared prepared = prepare_on(preparing);
    const Graph graph(captured, GetParam(), [&] { run_on(prepared, out, captured); });
    for (int run = 0; run < 2; ++run) {
      if (run > 0) {  // the first launch shows whether the preparation is complete
        out.clear();
        wait_for_device();
      }
      graph.launch(replaying);
      replaying.wait();
      EXPECT_EQ(out.bytes(), expected_) << "run " << run;
    }
  }
}

// What has nothing to do with a capture may go while it lasts, also with work in flight.
TEST_P(ApiCudaGraphs, PreparedBeforeAndDroppedDuringTheCapture) {
  DeviceOutput early(case_.problem(), case_.inputs.type);
  DeviceOutput out(case_.problem(), case_.inputs.type);
  wait_for_device();
  const Stream capturing;
  const Stream other;
  std::optional<openvc::Prepared> own = prepare_on(capturing);
  std::optional<openvc::Prepared> foreign = prepare_on(other);
  const BusyStream busy(other, kDelay);
  run_on(*foreign, early, other);
  const Graph graph(capturing, GetParam(), [&] {
    own.reset();
    foreign.reset();
    attention(tensors_->device_q.view(), tensors_->device_k.view(), tensors_->device_v.view(),
              out.view(), out.log_sum_exp(), case_.options(), {.stream = capturing});
  });
  poison();
  wait_for_device();
  EXPECT_EQ(early.bytes(), expected_);
  graph.launch(capturing);
  capturing.wait();
  EXPECT_EQ(out.fault(true), "");
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

// Preparation and attention on two streams of one capture; the memory is part of the graph.
TEST_P(ApiCudaGraphs, TwoStreamsOfOneCapture) {
  DeviceOutput out(case_.problem(), case_.inputs.type);
  run_on(prepare_on(nullptr), out, nullptr);  // first use may allocate what a capture must not
  wait_for_device();
  const Stream stream;
  const Stream side;
  cudaEvent_t fork = nullptr;
  cudaEvent_t join = nullptr;
  cuda::check(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming), "creating an event");
  cuda::check(cudaEventCreateWithFlags(&join, cudaEventDisableTiming), "creating an event");
  const Graph graph(stream, GetParam(), [&] {
    cuda::check(cudaEventRecord(fork, stream), "forking");
    cuda::check(cudaStreamWaitEvent(side, fork, 0), "forking");
    const openvc::Prepared prepared =
        prepare_on(stream);  // behind the fork: the library has to order it
    run_on(prepared, out, side);
    cuda::check(cudaEventRecord(join, side), "joining");
    cuda::check(cudaStreamWaitEvent(stream, join, 0), "joining");
  });
  for (int run = 0; run < 3; ++run) {
    out.clear();
    wait_for_device();
    graph.launch(stream);
    stream.wait();
    EXPECT_EQ(out.bytes(), expected_) << "run " << run;
  }
  cudaEventDestroy(fork);
  cudaEventDestroy(join);
}

// Prepared inside of a capture, used and dropped behind it.
TEST_P(ApiCudaGraphs, PreparedByAGraph) {
  DeviceOutput out(case_.problem(), case_.inputs.type);
  run_on(prepare_on(nullptr), out, nullptr);  // first use may allocate what a capture must not
  out.clear();
  wait_for_device();
  const auto used_by_graphs = [] {
    std::uint64_t bytes = 0;
    cuda::check(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemCurrent, &bytes),
                "reading the memory of graphs");
    return bytes;
  };
  cuda::check(cudaDeviceGraphMemTrim(0), "returning what graphs no longer use");
  const std::uint64_t before = used_by_graphs();
  const Stream stream;
  std::optional<openvc::Prepared> prepared;
  std::optional<Graph> graph;
  graph.emplace(stream, GetParam(), [&] {
    prepared = prepare_on(stream);
    const Error error = error_of([&] { (void)prepared->plans(); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("plans: the inputs belong to a CUDA graph"));
  });
  graph->launch(stream);
  run_on(*prepared, out, stream);
  EXPECT_EQ(prepared->plans().size(), 3u);
  stream.wait();
  EXPECT_EQ(out.bytes(), expected_);
  EXPECT_GT(used_by_graphs(), before);
  prepared.reset();
  wait_for_device();
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  // The driver counts what it keeps for a graph that can be launched again.
  graph.reset();
  cuda::check(cudaDeviceGraphMemTrim(0), "returning what graphs no longer use");
  EXPECT_EQ(used_by_graphs(), before) << "memory that nobody has freed";
}

}  // namespace
}  // namespace openvc::test
