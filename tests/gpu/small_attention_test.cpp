// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "gpu/attention_fixture.hpp"
#include "numerics/repair.hpp"

// Attention kernels against the CPU backend on problems so small that the model of the machine runs
// them in every test run (model/tests/gpu/attention_fixture.hpp); on a GPU they run with the large
// ones.
namespace openvc::test {
namespace {

class SmallAttention : public Sm90Test, public testing::WithParamInterface<const AttentionKernel*> {
 protected:
  static AttentionCase make_case(std::int64_t batch, std::int64_t heads, std::int64_t queries,
                                 std::int64_t keys, Mask mask = Mask::none) {
    AttentionCase c = test::make_case(batch, heads, queries, keys, mask);
    c.kernel = GetParam();
    return c;
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, SmallAttention, testing::ValuesIn(kSmallKernels),
                         [](const auto& kernel) { return kernel.param->name; });

TEST_P(SmallAttention, KeyLengths) {
  // One to five tiles: every length of the pipeline's start and end.
  for (const std::int64_t keys : {1, 128, 129, 300, 500, 640}) {
    expect_agreement(make_case(1, 1, 70, keys));
  }
}

TEST_P(SmallAttention, QueryLengths) {
  for (const std::int64_t queries : {1, 129, 256, 257}) {
    expect_agreement(make_case(1, 1, queries, 200));
  }
}

TEST_P(SmallAttention, BatchesAndHeads) { expect_agreement(make_case(2, 2, 130, 200)); }

TEST_P(SmallAttention, Float16) {
  AttentionCase c = make_case(1, 1, 130, 300);
  c.type = ElementType::float16;
  expect_agreement(c);
}

TEST_P(SmallAttention, Causal) {
  expect_agreement(make_case(1, 2, 300, 300, Mask::causal));
  expect_agreement(make_case(1, 1, 65, 400, Mask::causal));
  expect_agreement(make_case(1, 1, 400, 70, Mask::causal));  // rows without keys
}

TEST_P(SmallAttention, ExtraSteps) {
  for (const int steps : {1, 2, 4}) {
    AttentionCase c = make_case(1, 1, 200, 200);
    c.numerics = all_steps(steps);
    expect_agreement(c, kWithExtraSteps);
  }
}

TEST_P(SmallAttention, CausalWithExtraSteps) {
  for (const int steps : {1, 2, 4}) {
    AttentionCase c = make_case(1, 1, 200, 200, Mask::causal);
    c.numerics = all_steps(steps);
    expect_agreement(c, kWithExtraSteps);
  }
}

/// Heads whose scores count many code units, and such that need no reference, next to each other.
TEST_P(SmallAttention, WideHeads) {
  constexpr float kGains[] = {1.0f, 30.0f, 3000.0f};
  for (const Mask mask : {Mask::none, Mask::causal}) {
    AttentionCase c = make_case(1, 3, 200, 300, mask);
    c.numerics = all_steps(0);
    study::Tensors tensors = make_tensors(c);
    transform(tensors.q, [&](auto, auto, std::int64_t h, auto, float x) { return kGains[h] * x; });
    expect_agreement(c, tensors, {.flipped = 0.5, .undecided_rows = 0.05, .log_sum_exp = 1e5});
  }
}

TEST_P(SmallAttention, Repair) {
  AttentionCase c = make_case(1, 1, 200, 300);
  c.problem.repair_rows = numerics::repair_row_count(0.2, c.problem.keys);
  expect_agreement(c);
  c.numerics = all_steps(2);
  expect_agreement(c, kWithExtraSteps);
}

/// Residual columns of V, and the product behind the kernel.
TEST_P(SmallAttention, ValuesOnAxes) {
  AttentionCase c = make_case(1, 1, 70, 4200);
  c.numerics.value_axes = Choice::always;
  study::Tensors tensors = make_tensors(c);
  transform(tensors.v, [&](auto, auto, auto, std::int64_t channel, float x) {
    return channel % 21 == 4 ? 8.0f * x + 1.0f : x;
  });
  expect_agreement(c, tensors);
}

/// Scores too small to be rounded apart: no code differs from the CPU's.
TEST_P(SmallAttention, SmallScoresFlipNoCodes) {
  AttentionCase c = make_case(1, 1, 130, 500);
  c.softmax_scale = 1e-4f;
  expect_agreement(c, {.flipped = 0.0});
}

TEST_P(SmallAttention, HeadSizes) {
  for (const int head_dim : {8, 64, 80}) {
    AttentionCase c = make_case(1, 2, 70, 200);
    c.problem.head_dim = head_dim;
    study::Tensors tensors = make_tensors(c);
    for (study::OwnedTensor* tensor : {&tensors.q, &tensors.k, &tensors.v}) {
      tensor->shape[kChannel] = head_dim;  // the elements in another shape
    }
    expect_agreement(c, tensors);
  }
}

/// Whole blocks of keys, so that the others, which were prepared, are behind those that are read.
TEST_P(SmallAttention, SelectedKeys) {
  for (const std::int32_t keys : {0, 128, 384}) {
    AttentionCase c = make_case(2, 1, 140, 500);
    c.selected_keys = keys;
    expect_agreement(c);
  }
}

TEST_P(SmallAttention, NanOfAValueStaysInItsHead) {
  const AttentionCase c = make_case(1, 2, 100, 200);
  study::Tensors tensors = make_tensors(c);
  transform(tensors.v, [](auto, std::int64_t s, std::int64_t h, std::int64_t channel, float x) {
    return s == 3 && h == 1 && channel == 5 ? numerics::quiet_nan() : x;
  });
  expect_agreement(c, tensors);
}

}  // namespace
}  // namespace openvc::test
