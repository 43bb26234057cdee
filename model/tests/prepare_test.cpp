// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "gpu/device_buffer.hpp"
#include "gpu/prepare_case.hpp"
#include "machine/machine.hpp"

// The preparation kernels on the model write the bytes of cpu::prepare(), as they do on a GPU
// (tests/gpu/prepare_gpu_test.cpp), in whatever order threads take their turns.
namespace openvc::test {
namespace {

constexpr std::uint64_t kSeeds[] = {0, 1, 2};
/// Products are rounded once here, so that fewer codes differ than a GPU's.
constexpr double kMaxModelFlips = 1e-3;

/// The same without a call to the CUDA runtime. Returns the plans of the heads.
std::vector<numerics::HeadPlan> expect_equal(const PrepareCase& c, std::uint64_t seed) {
  SCOPED_TRACE(c.describe() + ", order " + std::to_string(seed));
  model::set_seed(seed);
  const CaseTensors tensors(c);
  DevicePreparation device(device_request(c, tensors));
  device.launch(nullptr);
  const Prepared expected = prepare_on_host(c, tensors);
  EXPECT_EQ(first_difference(expected, device.result(nullptr), kMaxModelFlips), "");
  EXPECT_TRUE(device.guards_untouched());
  return expected.plans;
}

PrepareCase small_case(std::int64_t tokens) {
  PrepareCase c;
  c.heads = 1;
  c.queries = tokens;
  c.keys = tokens + 40;
  c.family = Family::outliers;
  c.numerics.max_extra_steps = 2;
  c.numerics.score_error_target = 0.0f;
  return c;
}

TEST(ModelPrepare, Lengths) {
  for (const std::uint64_t seed : kSeeds) {
    for (const std::int64_t tokens : {1, 17, 129, 300}) {
      PrepareCase c = small_case(tokens);
      c.with_log_sum_exp = true;
      expect_equal(c, seed);
    }
  }
}

TEST(ModelPrepare, LayoutsAndTypes) {
  for (const ElementType type :
       {ElementType::bfloat16, ElementType::float16, ElementType::float32}) {
    for (const Layout layout : {Layout::fused_qkv, Layout::reversed, Layout::odd_pitch}) {
      PrepareCase c = small_case(70);
      c.type = type;
      c.layout = layout;
      c.heads = 2;
      expect_equal(c, 1);
    }
  }
}

TEST(ModelPrepare, PrincipalAxes) {
  int on_axes = 0;
  for (const std::uint64_t seed : kSeeds) {
    for (const ElementType type : {ElementType::bfloat16, ElementType::float32}) {
      PrepareCase c = small_case(200);
      c.type = type;
      c.numerics.rotation = Choice::always;
      for (const numerics::HeadPlan& plan : expect_equal(c, seed)) on_axes += plan.scores.axes;
    }
  }
  EXPECT_EQ(on_axes, 6);
}

TEST(ModelPrepare, ValuesOnAxes) {
  int on_axes = 0;
  for (const ElementType type : {ElementType::bfloat16, ElementType::float16}) {
    PrepareCase c = small_case(130);
    c.type = type;
    c.keys = 4096;
    c.numerics.value_axes = Choice::always;
    for (const numerics::HeadPlan& plan : expect_equal(c, 1)) on_axes += plan.values_on_axes;
  }
  EXPECT_EQ(on_axes, 2);
}

TEST(ModelPrepare, SomeHeadsOnAxes) {
  PrepareCase c = small_case(130);
  c.heads = 4;
  c.keys = 4096;
  c.family = Family::some_on_axes;
  c.with_log_sum_exp = true;
  c.numerics.rotation = Choice::always;
  c.numerics.value_axes = Choice::always;
  std::int64_t head = 0;
  for (const numerics::HeadPlan& plan : expect_equal(c, 3)) {
    EXPECT_EQ(plan.scores.axes != 0, head % 2 == 0) << head;
    EXPECT_EQ(plan.values_on_axes != 0, head / 2 % 2 == 0) << head;
    ++head;
  }
}

TEST(ModelPrepare, HeadSizesAndGroups) {
  for (const int head_dim : {8, 64, 80}) {
    PrepareCase c = small_case(40);
    c.head_dim = head_dim;
    c.heads = 2;
    c.heads_per_group = 2;
    c.with_log_sum_exp = true;
    c.layout = head_dim == 80 ? Layout::odd_pitch : Layout::contiguous;
    expect_equal(c, 1);
    c.type = head_dim == 64 ? ElementType::float32 : ElementType::float16;
    c.numerics.rotation = Choice::always;
    c.heads = 1;
    c.heads_per_group = 1;
    expect_equal(c, 2);
  }
}

TEST(ModelPrepare, Repair) {
  PrepareCase c = small_case(300);
  c.repair_budget = 0.03;
  for (const std::uint64_t seed : kSeeds) expect_equal(c, seed);
}

}  // namespace
}  // namespace openvc::test
