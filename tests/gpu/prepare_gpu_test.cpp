// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "gpu/device_buffer.hpp"
#include "gpu/prepare_case.hpp"

// The device's preparation writes the bytes of cpu::prepare(), whatever the inputs.
namespace openvc::test {
namespace {

class PrepareGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
    cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
  }
  void TearDown() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  /// Returns the plans of the heads.
  std::vector<numerics::HeadPlan> expect_equal(const PrepareCase& c) {
    SCOPED_TRACE(c.describe());
    const CaseTensors tensors(c);
    DevicePreparation device(device_request(c, tensors));
    cuda::check(cudaDeviceSynchronize(), "waiting for the inputs");
    device.launch(stream_);
    const Prepared expected = prepare_on_host(c, tensors);
    EXPECT_EQ(first_difference(expected, device.result(stream_)), "");
    EXPECT_TRUE(device.guards_untouched());
    return expected.plans;
  }

  cudaStream_t stream_ = nullptr;
};

NumericOptions steps_options(int steps, float target) {
  NumericOptions options;
  options.max_extra_steps = steps;
  options.score_error_target = target;
  return options;
}

TEST_F(PrepareGpu, Lengths) {
  for (const std::int64_t tokens : {1, 2, 15, 16, 17, 63, 127, 128, 129, 300, 1000, 4097}) {
    for (const std::int64_t heads : {1, 3}) {
      PrepareCase c;
      c.batch = 2;
      c.heads = heads;
      c.queries = c.keys = tokens;
      c.family = Family::offset;
      c.with_log_sum_exp = true;
      c.numerics = steps_options(2, 0.0f);
      expect_equal(c);
    }
  }
}

TEST_F(PrepareGpu, CrossAttention) {
  constexpr std::int64_t kLengths[][2] = {{1, 300}, {300, 1}, {129, 1000}, {1000, 77}, {256, 4097}};
  for (const auto& lengths : kLengths) {
    PrepareCase c;
    c.queries = lengths[0];
    c.keys = lengths[1];
    c.with_log_sum_exp = true;
    c.repair_budget = 0.1;
    expect_equal(c);
  }
}

// More than kReductionGroup tiles: the canonical tree has three levels.
TEST_F(PrepareGpu, LongSequences) {
  for (const std::int64_t keys : {16384, 16385, 40000}) {
    PrepareCase c;
    c.heads = 2;
    c.queries = 500;
    c.keys = keys;
    c.family = Family::offset;
    c.repair_budget = 0.005;
    expect_equal(c);
  }
  // One tensor needs the third level, the other is a single tile.
  for (const auto& [queries, keys] : {std::pair{1, 17000}, std::pair{17000, 1}}) {
    PrepareCase c;
    c.queries = queries;
    c.keys = keys;
    c.with_log_sum_exp = true;
    expect_equal(c);
  }
  PrepareCase c;
  c.heads = 1;
  c.queries = c.keys = 33000;
  c.family = Family::outliers;
  expect_equal(c);
}

TEST_F(PrepareGpu, LayoutsAndTypes) {
  for (const ElementType type :
       {ElementType::bfloat16, ElementType::float16, ElementType::float32}) {
    for (const Layout layout : kLayouts) {
      for (const std::int64_t tokens : {1, 300}) {
        PrepareCase c;
        c.type = type;
        c.layout = layout;
        c.batch = tokens == 1 ? 1 : 2;
        c.heads = 3;
        c.queries = c.keys = tokens;
        c.repair_budget = tokens == 1 ? 0.0 : 0.05;
        expect_equal(c);
        c.heads = 1;
        expect_equal(c);
      }
    }
  }
}

TEST_F(PrepareGpu, UnalignedPointers) {
  for (const ElementType type :
       {ElementType::bfloat16, ElementType::float16, ElementType::float32}) {
    for (std::size_t shift = element_size(type); shift < 16; shift += element_size(type)) {
      PrepareCase c;
      c.type = type;
      c.shift = shift;
      c.repair_budget = 0.02;
      c.numerics = steps_options(4, 0.0f);
      expect_equal(c);
    }
  }
}

TEST_F(PrepareGpu, Families) {
  for (const ElementType type :
       {ElementType::bfloat16, ElementType::float16, ElementType::float32}) {
    for (const Family family : kFamilies) {
      for (const Choice rotation : {Choice::never, Choice::automatic, Choice::always}) {
        PrepareCase c;
        c.type = type;
        c.family = family;
        c.queries = c.keys = 257;
        c.heads = 3;
        c.with_log_sum_exp = true;
        c.repair_budget = 0.03;
        c.numerics.rotation = rotation;
        expect_equal(c);
      }
    }
  }
}

// Axes, shares, plans and means are equal bit for bit; the matrices follow from them.
TEST_F(PrepareGpu, PrincipalAxes) {
  int on_axes = 0;
  for (const ElementType type :
       {ElementType::bfloat16, ElementType::float16, ElementType::float32}) {
    for (const Family family : {Family::normal, Family::outliers, Family::offset, Family::wide}) {
      for (const int steps : {1, 2, 4}) {
        for (const std::int64_t tokens : {1, 3, 130, 2047, 2048, 2049, 5000}) {
          PrepareCase c;
          c.type = type;
          c.family = family;
          c.queries = tokens;
          c.keys = tokens + 40;
          c.numerics = steps_options(steps, 0.0f);
          c.numerics.rotation = Choice::always;
          c.with_log_sum_exp = steps == 2;
          c.repair_budget = steps == 4 ? 0.02 : 0.0;
          for (const numerics::HeadPlan& plan : expect_equal(c)) on_axes += plan.scores.axes;
        }
      }
    }
  }
  EXPECT_GT(on_axes, 100);
}

TEST_F(PrepareGpu, ValuesOnAxes) {
  int on_axes = 0;
  for (const ElementType type :
       {ElementType::bfloat16, ElementType::float16, ElementType::float32}) {
    for (const Family family : kFamilies) {
      for (const bool smooth : {false, true}) {
        PrepareCase c;
        c.type = type;
        c.family = family;
        c.queries = 130;
        c.keys = smooth ? 4096 : 4301;
        c.with_log_sum_exp = smooth;
        c.numerics.smooth_values = smooth;
        c.numerics.value_axes = Choice::always;
        c.numerics.rotation = smooth ? Choice::always : Choice::never;
        c.shift = type == ElementType::bfloat16 && !smooth ? 2 : 0;
        for (const numerics::HeadPlan& plan : expect_equal(c)) on_axes += plan.values_on_axes;
      }
    }
  }
  EXPECT_GT(on_axes, 30);
}

// More tiles than blocks that stay, of heads on axes beside heads that are not.
TEST_F(PrepareGpu, SomeHeadsOnAxes) {
  for (const ElementType type : {ElementType::bfloat16, ElementType::float16}) {
    PrepareCase c;
    c.type = type;
    c.heads = 24;
    c.queries = 4200;
    c.keys = 4300;
    c.family = Family::some_on_axes;
    c.with_log_sum_exp = type == ElementType::float16;
    c.shift = type == ElementType::float16 ? 2 : 0;
    c.numerics.rotation = Choice::always;
    c.numerics.value_axes = Choice::always;
    std::int64_t head = 0;
    for (const numerics::HeadPlan& plan : expect_equal(c)) {
      EXPECT_EQ(plan.scores.axes != 0, head % 2 == 0) << head;
      EXPECT_EQ(plan.values_on_axes != 0, head / 2 % 2 == 0) << head;
      ++head;
    }
  }
}

TEST_F(PrepareGpu, PrincipalAxesOfLayouts) {
  for (const ElementType type : {ElementType::bfloat16, ElementType::float32}) {
    for (const Layout layout : kLayouts) {
      PrepareCase c;
      c.type = type;
      c.layout = layout;
      c.batch = 2;
      c.heads = 3;
      c.family = Family::outliers;
      c.numerics = steps_options(2, 0.0f);
      c.numerics.rotation = Choice::always;
      expect_equal(c);
    }
  }
}

TEST_F(PrepareGpu, Options) {
  for (const Family family : {Family::normal, Family::outliers, Family::offset}) {
    for (const bool smooth : {false, true}) {
      for (const int steps : {0, 1, 2, 4}) {
        for (const float target : {0.0f, 0.32f, 2.0f}) {
          PrepareCase c;
          c.family = family;
          c.numerics = steps_options(steps, target);
          c.numerics.smooth_keys = smooth;
          c.numerics.smooth_values = !smooth;
          c.numerics.value_scale = steps == 2 ? ValueScale::per_head : ValueScale::per_channel;
          c.with_log_sum_exp = steps == 4;
          expect_equal(c);
        }
      }
    }
  }
}

// The cases reach both sides of every decision that is taken automatically.
TEST_F(PrepareGpu, AutomaticDecisions) {
  constexpr float kNoSteps = 100.0f;
  std::set<int> steps;
  std::set<bool> rotated;
  std::set<bool> wide;
  for (const Family family : {Family::normal, Family::wide, Family::outliers, Family::offset}) {
    for (const float target : {0.0f, 0.2f, 0.32f, kNoSteps}) {
      PrepareCase c;
      c.heads = 1;
      c.queries = 200;
      c.keys = 2000;
      c.family = family;
      c.numerics = steps_options(target < kNoSteps ? 4 : 0, target);
      for (const numerics::HeadPlan& plan : expect_equal(c)) {
        steps.insert(plan.scores.extra_steps);
        rotated.insert(plan.scores.rotated != 0);
        wide.insert(plan.rule().wide());
      }
    }
  }
  EXPECT_EQ(steps, (std::set<int>{0, 1, 2, 4}));
  EXPECT_EQ(rotated.size(), 2u);
  EXPECT_EQ(wide.size(), 2u);
}

TEST_F(PrepareGpu, RepairBudgets) {
  // Constant values: all energies are equal, and ties decide everything.
  for (const Family family : {Family::normal, Family::constant, Family::one_bad_head}) {
    for (const double budget : {0.002, 0.005, 0.1, 0.5, 0.999}) {
      for (const std::int64_t tokens : {129, 1000, 4097}) {
        PrepareCase c;
        c.family = family;
        c.queries = 64;
        c.keys = tokens;
        c.repair_budget = budget;
        c.numerics = steps_options(2, 0.0f);
        expect_equal(c);
      }
    }
  }
}

// More blocks than a device holds at once.
TEST_F(PrepareGpu, GridsOfSeveralWaves) {
  constexpr std::int64_t kShapes[][2] = {{60, 700}, {400, 129}, {4, 33000}};
  for (const auto& shape : kShapes) {
    PrepareCase c;
    c.heads = shape[0];
    c.queries = c.keys = shape[1];
    c.family = Family::offset;
    c.repair_budget = 0.01;
    c.with_log_sum_exp = true;
    expect_equal(c);
  }
}

// Kernels that start early wait for the one before them, whatever else holds the device; and one
// workspace serves launch after launch.
TEST_F(PrepareGpu, LaunchesOnManyStreams) {
  constexpr int kStreams = 6;
  constexpr int kRounds = 10;
  std::vector<PrepareCase> cases(kStreams);
  std::vector<std::unique_ptr<CaseTensors>> tensors;
  std::vector<std::unique_ptr<DevicePreparation>> preparations;
  std::vector<cudaStream_t> streams(kStreams);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    PrepareCase& c = cases[i];
    c.heads = 1 + static_cast<std::int64_t>(i);
    c.queries = c.keys = 9000 / c.heads + 3;
    c.seed = i;
    c.repair_budget = i % 2 == 0 ? 0.0 : 0.01;
    tensors.push_back(std::make_unique<CaseTensors>(c));
    preparations.push_back(std::make_unique<DevicePreparation>(device_request(c, *tensors.back())));
    cuda::check(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking), "creating a stream");
  }
  cuda::check(cudaDeviceSynchronize(), "waiting for the inputs");
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < cases.size(); ++i) preparations[i]->launch(streams[i]);
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(first_difference(prepare_on_host(cases[i], *tensors[i]),
                               preparations[i]->result(streams[i])),
              "")
        << cases[i].describe();
    EXPECT_TRUE(preparations[i]->guards_untouched());
    cudaStreamDestroy(streams[i]);
  }
}

TEST_F(PrepareGpu, RandomCases) {
  const char* wanted = std::getenv("OPENVC_RANDOM_CASES");
  const int count = wanted != nullptr ? std::atoi(wanted) : 150;
  Random random(20260101);
  const auto below = [&](std::uint64_t limit) {
    return static_cast<std::int64_t>(random.next() % limit);
  };
  for (int i = 0; i < count && !HasFailure(); ++i) {
    PrepareCase c;
    c.type = static_cast<ElementType>(below(3));
    c.batch = 1 + below(2);
    c.heads = 1 + below(3);
    c.queries = 1 + below(700);
    c.keys = below(2) == 0 ? c.queries : 1 + below(1500);
    c.layout = kLayouts[below(std::size(kLayouts))];
    c.family = kFamilies[below(std::size(kFamilies))];
    c.shift = below(2) == 0 ? 0 : 4 * static_cast<std::size_t>(below(4));
    constexpr int kSteps[] = {0, 1, 2, 4};
    c.numerics.max_extra_steps = kSteps[below(4)];
    c.numerics.score_error_target = static_cast<float>(below(5)) * 0.2f;
    c.numerics.rotation = static_cast<Choice>(below(3));
    c.numerics.smooth_keys = below(3) != 0;
    c.numerics.smooth_values = below(3) != 0;
    c.numerics.value_scale = static_cast<ValueScale>(below(2));
    c.with_log_sum_exp = below(2) == 0;
    c.repair_budget = below(2) == 0 ? 0.0 : 0.001 * static_cast<double>(below(300));
    c.seed = random.next() % 1000;
    expect_equal(c);
  }
}

TEST_F(PrepareGpu, RunsRepeatBitForBit) {
  PrepareCase c;
  c.heads = 3;
  c.queries = c.keys = 4097;
  c.repair_budget = 0.01;
  const CaseTensors tensors(c);
  DevicePreparation device(device_request(c, tensors));
  cuda::check(cudaDeviceSynchronize(), "waiting for the inputs");
  device.launch(stream_);
  const Prepared first = device.result(stream_);
  for (int run = 0; run < 20; ++run) {
    device.launch(stream_);
    ASSERT_EQ(first_difference(first, device.result(stream_)), "") << "run " << run;
  }
}

TEST_F(PrepareGpu, GraphReplayReadsNewInputs) {
  PrepareCase c;
  c.heads = 3;
  c.queries = c.keys = 1000;
  c.family = Family::offset;
  c.with_log_sum_exp = true;
  c.repair_budget = 0.02;
  CaseTensors tensors(c);
  DevicePreparation device(device_request(c, tensors));
  cuda::check(cudaDeviceSynchronize(), "waiting for the inputs");
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cuda::check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capturing");
  device.launch(stream_);
  cuda::check(cudaStreamEndCapture(stream_, &graph), "ending the capture");
  cuda::check(cudaGraphInstantiate(&executable, graph, 0), "instantiating a graph");
  for (const Family family : {Family::offset, Family::outliers, Family::zeros, Family::normal}) {
    c.family = family;
    ++c.seed;
    tensors.refill(c);
    cuda::check(cudaDeviceSynchronize(), "waiting for the inputs");
    cuda::check(cudaGraphLaunch(executable, stream_), "launching a graph");
    EXPECT_EQ(first_difference(prepare_on_host(c, tensors), device.result(stream_)), "")
        << c.describe();
  }
  EXPECT_TRUE(device.guards_untouched());
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

// Offsets beyond 2^32 elements and 2^33 bytes.
TEST_F(PrepareGpu, StridesBeyond32Bits) {
  PrepareCase c;
  c.batch = 2;
  c.heads = 1;
  const std::int64_t row = numerics::kHeadDim;
  const CaseTensors tensors(c);
  const std::int64_t batch_stride = (std::int64_t{1} << 32) + row;
  const auto half_bytes = static_cast<std::size_t>(c.keys * row) * element_size(c.type);
  const std::size_t bytes = static_cast<std::size_t>(batch_stride) * element_size(c.type);
  std::size_t free = 0;
  std::size_t total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "asking for free memory");
  if (free < bytes + bytes / 8) GTEST_SKIP() << "needs " << bytes << " bytes of device memory";
  DeviceBuffer storage(bytes + half_bytes, 0xFF);
  auto request = device_request(c, tensors);
  const auto widen = [&](TensorView& view, const TestTensor& host) {
    for (const std::int64_t b : {0, 1}) {
      storage.upload(static_cast<const std::byte*>(host.view().data) + b * c.keys * row * 2,
                     half_bytes, static_cast<std::size_t>(b * batch_stride) * 2);
    }
    view.data = storage.data();
    view.strides[kBatch] = batch_stride;
  };
  const Prepared expected = prepare_on_host(c, tensors);
  // One tensor at a time takes the wide buffer.
  const auto expect_same = [&](const schedule::PrepareRequest& wide, const char* name) {
    cuda::check(cudaDeviceSynchronize(), "waiting for the inputs");
    DevicePreparation device(wide);
    device.launch(stream_);
    EXPECT_EQ(first_difference(expected, device.result(stream_)), "") << name;
  };
  auto wide = request;
  widen(wide.q, tensors.q);
  expect_same(wide, "q");
  wide = request;
  widen(wide.k, tensors.k);
  expect_same(wide, "k");
  wide = request;
  widen(wide.v, tensors.v);
  expect_same(wide, "v");
}

// The comparison itself can fail.
TEST_F(PrepareGpu, ComparisonSeesOneBit) {
  PrepareCase c;
  const CaseTensors tensors(c);
  const Prepared expected = prepare_on_host(c, tensors);
  for (const std::size_t at : {expected.layout.query_codes, expected.layout.value_codes + 7,
                               expected.layout.head_rules + 1, expected.layout.value_means + 5}) {
    Prepared changed = expected;
    changed.block[at] ^= std::byte{1};
    EXPECT_NE(first_difference(expected, changed), "");
  }
  Prepared changed = expected;
  changed.plans[1].value_rounding.error += 1.0f;
  EXPECT_NE(first_difference(expected, changed), "");
}

}  // namespace
}  // namespace openvc::test
