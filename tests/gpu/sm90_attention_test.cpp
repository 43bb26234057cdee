// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/attention_fixture.hpp"
#include "numerics/repair.hpp"

// The Hopper kernel against the CPU backend: every shape, plan and kind of output.
namespace openvc::test {
namespace {

class Sm90Attention : public Sm90Test {};

// ---- shapes -------------------------------------------------------------------------------------

TEST_F(Sm90Attention, QueryLengths) {
  for (const std::int64_t queries : {1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000, 4097}) {
    for (const std::int64_t keys : {1, 129, 1000}) expect_agreement(make_case(1, 2, queries, keys));
  }
}

TEST_F(Sm90Attention, KeyLengths) {
  // One to nine tiles: every length of the pipeline's start and end.
  for (const std::int64_t keys : {1,   2,   63,  64,  65,  127, 128, 129,  255,  256, 257,
                                  384, 385, 512, 640, 700, 896, 897, 1000, 1152, 4097}) {
    for (const std::int64_t queries : {1, 129, 300}) {
      expect_agreement(make_case(1, 2, queries, keys));
    }
  }
}

TEST_F(Sm90Attention, SelfAttention) {
  for (const std::int64_t tokens : {1, 2, 63, 65, 127, 128, 129, 255, 1000, 4097}) {
    expect_agreement(make_case(1, 2, tokens, tokens));
  }
}

TEST_F(Sm90Attention, BatchesAndHeads) {
  for (const std::int64_t batch : {1, 2, 5}) {
    for (const std::int64_t heads : {1, 3, 40}) expect_agreement(make_case(batch, heads, 200, 333));
  }
}

TEST_F(Sm90Attention, MoreHeadsThanAGridHasRows) {
  AttentionCase c = make_case(1000, 70, 2, 3);
  c.numerics.max_extra_steps = 0;
  expect_agreement(c);
}

TEST_F(Sm90Attention, DescendingOrder) {
  AttentionCase c = make_case(1, 2, 1000, 3000);
  c.problem.key_order = KeyOrder::descending;
  expect_agreement(c);
}

TEST_F(Sm90Attention, Causal) {
  constexpr std::int64_t kLengths[] = {1, 2, 64, 127, 128, 129, 300, 1000};
  for (const std::int64_t queries : kLengths) {
    for (const std::int64_t keys : kLengths) {
      expect_agreement(make_case(1, 2, queries, keys, Mask::causal));
    }
  }
  expect_agreement(make_case(2, 2, 4097, 4097, Mask::causal));
}

TEST_F(Sm90Attention, CausalRowsWithoutKeysAreZero) {
  for (const std::int64_t queries : {130, 400, 1000}) {
    const AttentionCase c = make_case(1, 2, queries, 70, Mask::causal);
    const HostPrepared host(c, make_tensors(c));
    const DevicePrepared device(host);
    DeviceOutput out(c.problem, c.type);
    run_on_device(device.view(), out);
    EXPECT_EQ(out.fault(true), "");
    const AttentionResult result = out.read();
    for (std::int64_t bh = 0; bh < 2; ++bh) {
      for (std::int64_t i = 0; i < queries - 70; ++i) {
        ASSERT_EQ(squared_norm(output_row(c.problem, result.output, bh, i)), 0.0) << "row " << i;
        ASSERT_EQ(result.log_sum_exp[static_cast<std::size_t>(bh * queries + i)],
                  -numerics::infinity())
            << "row " << i;
      }
    }
  }
}

TEST_F(Sm90Attention, CausalWithExtraSteps) {
  for (const int steps : {1, 2, 4}) {
    AttentionCase c = make_case(1, 2, 513, 700, Mask::causal);
    c.numerics = all_steps(steps);
    expect_agreement(c, {.flipped = 0.08});
  }
}

// ---- plans of a head ----------------------------------------------------------------------------

TEST_F(Sm90Attention, ExtraSteps) {
  for (const int steps : {0, 1, 2, 4}) {
    for (const std::int64_t tokens : {1, 128, 700, 2049}) {
      AttentionCase c = make_case(1, 2, tokens, tokens);
      c.numerics = all_steps(steps);
      expect_agreement(c, kWithExtraSteps);
    }
  }
}

/// Heads whose scores count many code units: the scale grows with the head.
TEST_F(Sm90Attention, WideHeads) {
  constexpr float kGains[] = {30.0f, 300.0f, 3000.0f, 1e5f};
  for (const Mask mask : {Mask::none, Mask::causal}) {
    AttentionCase c = make_case(1, 4, 500, 1000, mask);
    c.numerics = all_steps(0);
    study::Tensors tensors = make_tensors(c);
    transform(tensors.q, [&](auto, auto, std::int64_t h, auto, float x) { return kGains[h] * x; });
    const HostPrepared host(c, tensors);
    EXPECT_GT(host.plans().back().score_exponent, 0);
    // The step of binary16 at the largest score is 32 units of 2^score_exponent codes.
    expect_agreement(c, tensors, {.flipped = 0.5, .undecided_rows = 0.05, .log_sum_exp = 1e5});
  }
}

TEST_F(Sm90Attention, SmallScoresFlipNoCodes) {
  AttentionCase c = make_case(1, 2, 500, 3000);
  c.softmax_scale = 1e-4f;
  expect_agreement(c, {.flipped = 0.0});
}

TEST_F(Sm90Attention, EveryHeadHasItsOwnPlan) {
  AttentionCase c = make_case(1, 8, 300, 900);
  c.numerics.max_extra_steps = 4;
  study::Tensors tensors = make_tensors(c);
  // Outliers in one channel of Q and K: worth residual columns in some heads, none in others.
  const auto stretch = [](auto, auto, std::int64_t h, std::int64_t channel, float x) {
    return channel == 7 * h ? x * (1.0f + 0.5f * static_cast<float>(h)) : x;
  };
  transform(tensors.q, stretch);
  transform(tensors.k, stretch);
  expect_agreement(c, tensors, {.flipped = 0.15, .log_sum_exp = 0.05});
}

TEST_F(Sm90Attention, RepairRows) {
  for (const double budget : {0.002, 0.02, 0.2, 0.9}) {
    for (const std::int64_t keys : {129, 1000, 3000}) {
      AttentionCase c = make_case(1, 2, 200, keys);
      c.problem.repair_rows = numerics::repair_row_count(budget, keys);
      expect_agreement(c);
      c.numerics = all_steps(2);
      expect_agreement(c, kWithExtraSteps);
    }
  }
}

// Rows outside the denominator: a head of equal values shows a wrong denominator at once.
TEST_F(Sm90Attention, RepairRowsStayOutOfTheDenominator) {
  AttentionCase c = make_case(1, 1, 130, 500);
  c.problem.repair_rows = 100;
  c.numerics.smooth_values = false;
  study::Tensors tensors = make_tensors(c);
  constexpr float kValue = 0.7f;
  transform(tensors.v, [&](auto, auto, auto, auto, float) { return kValue; });
  const HostPrepared host(c, tensors);
  const DevicePrepared device(host);
  DeviceOutput out(c.problem, c.type);
  run_on_device(device.view(), out);
  for (const float x : out.read().output) ASSERT_NEAR(x, kValue, 0.005f);
}

// ---- outputs ------------------------------------------------------------------------------------

TEST_F(Sm90Attention, Float16) {
  for (const std::int64_t tokens : {1, 129, 1000}) {
    AttentionCase c = make_case(2, 3, tokens, tokens);
    c.type = ElementType::float16;
    expect_agreement(c);
  }
}

TEST_F(Sm90Attention, StridedOutput) {
  const AttentionCase c = make_case(2, 3, 300, 500);
  const HostPrepared host(c, make_tensors(c));
  const DevicePrepared device(host);
  DeviceOutput dense(c.problem, c.type);
  run_on_device(device.view(), dense);
  const AttentionResult expected = dense.read();
  EXPECT_EQ(disagreement(c.problem, expected, run_on_cpu(host, c.type)), "");

  constexpr std::int64_t kRow = numerics::kHeadDim;
  const std::int64_t heads = c.problem.heads;
  const std::int64_t queries = c.problem.queries;
  const std::array<std::int64_t, 4> strides[] = {
      {heads * queries * kRow, kRow, queries * kRow, 1},        // head-major
      {3 * heads * queries * kRow, 3 * heads * kRow, kRow, 1},  // a third of a wider tensor
      {heads * queries * (kRow + 8), heads * (kRow + 8), kRow + 8, 1},
      {heads * queries * (kRow + 1), heads * (kRow + 1), kRow + 1, 1},  // rows at odd elements
      {heads * queries * (kRow + 3) + 5, heads * (kRow + 3), kRow + 3, 1},
  };
  for (const auto& layout : strides) {
    for (const std::int64_t shift : {0, 1, 2, 3, 4, 8}) {
      SCOPED_TRACE("row stride " + std::to_string(layout[kSequence]) + " shift " +
                   std::to_string(shift));
      DeviceOutput out(c.problem, c.type, layout, shift);
      run_on_device(device.view(), out);
      EXPECT_EQ(out.fault(true), "");
      const AttentionResult result = out.read();
      EXPECT_EQ(result.output, expected.output);
      EXPECT_EQ(result.log_sum_exp, expected.log_sum_exp);
    }
  }
}

TEST_F(Sm90Attention, StridesOfSingletonAxesDoNotMatter) {
  const AttentionCase c = make_case(1, 1, 1, 300);
  const HostPrepared host(c, make_tensors(c));
  const DevicePrepared device(host);
  DeviceOutput plain(c.problem, c.type);
  run_on_device(device.view(), plain);
  DeviceOutput odd(c.problem, c.type);
  MutableTensorView view = odd.view();
  view.strides = {12345677, -3, 999, 1};
  cuda::sm90::launch(device.view(), view, odd.log_sum_exp(), nullptr);
  cuda::check(cudaDeviceSynchronize(), "running the attention kernel");
  EXPECT_EQ(odd.fault(true), "");
  EXPECT_EQ(odd.bytes(), plain.bytes());
}

TEST_F(Sm90Attention, LogSumExpIsOptional) {
  for (const bool prepared_for_it : {false, true}) {
    AttentionCase c = make_case(1, 2, 300, 500);
    c.with_log_sum_exp = prepared_for_it;
    const HostPrepared host(c, make_tensors(c));
    const DevicePrepared device(host);
    DeviceOutput out(c.problem, c.type);
    run_on_device(device.view(), out, false);
    EXPECT_EQ(out.fault(false), "");
    AttentionResult result = out.read();
    result.log_sum_exp.clear();
    EXPECT_EQ(disagreement(c.problem, result, run_on_cpu(host, c.type)), "");
  }
}

// Output rows beyond 2^32 elements from the first.
TEST_F(Sm90Attention, OutputStridesBeyond32Bits) {
  const AttentionCase c = make_case(2, 1, 130, 200);
  const HostPrepared host(c, make_tensors(c));
  const DevicePrepared device(host);
  DeviceOutput dense(c.problem, c.type);
  run_on_device(device.view(), dense);
  const std::vector<std::byte> expected = dense.bytes();

  constexpr std::int64_t kRow = numerics::kHeadDim;
  const std::int64_t batch_stride = (std::int64_t{1} << 32) + kRow;
  const std::size_t bytes_per_batch =
      static_cast<std::size_t>(c.problem.queries * kRow) * sizeof(std::uint16_t);
  const std::size_t bytes =
      static_cast<std::size_t>(batch_stride) * sizeof(std::uint16_t) + bytes_per_batch;
  std::size_t free = 0;
  std::size_t total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "asking for free memory");
  if (free < bytes + bytes / 8) GTEST_SKIP() << "needs " << bytes << " bytes of device memory";
  const DeviceBuffer far(bytes, kUnwritten);
  MutableTensorView view = dense.view();
  view.data = far.data();
  view.strides[kBatch] = batch_stride;
  cuda::sm90::launch(device.view(), view, nullptr, nullptr);
  cuda::check(cudaDeviceSynchronize(), "running the attention kernel");
  for (const std::int64_t b : {0, 1}) {
    std::vector<std::byte> rows(bytes_per_batch);
    cuda::check(cudaMemcpy(rows.data(), far.data() + b * batch_stride * 2, bytes_per_batch,
                           cudaMemcpyDeviceToHost),
                "downloading");
    const auto* first = expected.data() + static_cast<std::size_t>(b) * bytes_per_batch;
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), first)) << "batch " << b;
  }
  EXPECT_TRUE(far.guards_untouched());
}

// ---- the comparison itself can fail -------------------------------------------------------------

TEST(Agreement, SeesOneWrongRow) {
  const AttentionCase c = make_case(1, 2, 2000, 2000);
  const HostPrepared host(c, make_tensors(c));
  const AttentionResult expected = run_on_cpu(host, c.type);
  EXPECT_EQ(disagreement(c.problem, expected, expected), "");
  AttentionResult changed = expected;
  for (std::size_t i = 0; i < 128; ++i) changed.output[777 * 2 * 128 + i] *= 1.3f;
  EXPECT_NE(disagreement(c.problem, changed, expected), "");
  changed = expected;
  for (float& x : changed.output) x *= 1.03f;
  EXPECT_NE(disagreement(c.problem, changed, expected), "");
  changed = expected;
  changed.output[5] = numerics::quiet_nan();
  EXPECT_NE(disagreement(c.problem, changed, expected), "");
  changed = expected;
  changed.log_sum_exp[3000] += 0.12f;
  EXPECT_NE(disagreement(c.problem, changed, expected), "");
  changed = expected;
  for (float& x : changed.log_sum_exp) x += 0.03f;
  EXPECT_NE(disagreement(c.problem, changed, expected), "");
  changed.log_sum_exp[3000] = -numerics::infinity();
  EXPECT_NE(disagreement(c.problem, changed, expected), "");
}

}  // namespace
}  // namespace openvc::test
