// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "gpu/prepare_case.hpp"
#include "gpu/selection_case.hpp"
#include "machine/machine.hpp"

// The preparation of a selection of keys writes what that of tensors without the others does.
namespace openvc::test {
namespace {

KeySelection view(const SelectionCase& selection, std::int64_t keys) {
  KeySelection view;
  if (!selection.lengths.empty()) view.lengths = selection.lengths.data();
  if (!selection.mask.empty()) view.mask = selection.mask.data();
  view.mask_batch_stride = keys;
  return view;
}

/// A section of one head or more of two blocks.
void expect_same_bytes(const Prepared& left, std::size_t at, const Prepared& right,
                       std::size_t other, std::size_t bytes, const char* what) {
  EXPECT_EQ(std::memcmp(left.block.data() + at, right.block.data() + other, bytes), 0) << what;
}

/// `found` is of a whole batch, `alone` of sequence `b`.
void expect_same_head(const Prepared& found, const Prepared& alone, std::int64_t b,
                      std::int64_t head, std::int64_t heads) {
  const schedule::PreparedLayout& l = found.layout;
  const schedule::PreparedLayout& a = alone.layout;
  const std::int64_t bh = b * heads + head;
  const auto bytes = [](std::int64_t rows, std::int64_t width) {
    return static_cast<std::size_t>(rows * width);
  };
  constexpr std::int64_t kDim = numerics::kHeadDim;
  expect_same_bytes(found, l.query_at(bh, 0), alone, a.query_at(head, 0), bytes(a.query_rows, kDim),
                    "queries");
  expect_same_bytes(found, l.key_at(bh, 0), alone, a.key_at(head, 0), bytes(a.key_rows, kDim),
                    "keys");
  expect_same_bytes(
      found, l.value_block_at(bh, 0), alone, a.value_block_at(head, 0),
      bytes(a.key_rows / numerics::kKeyBlock, static_cast<std::int64_t>(a.value_block_bytes())),
      "values");
  for (int step = 0; step < alone.plans[static_cast<std::size_t>(head)].scores.extra_steps;
       ++step) {
    expect_same_bytes(found, l.key_columns_at(step, bh, 0), alone, a.key_columns_at(step, head, 0),
                      bytes(a.key_rows, numerics::kColumnsPerStep), "key columns");
  }
  expect_same_bytes(found, l.value_scales_at(bh), alone, a.value_scales_at(head),
                    kDim * sizeof(float), "scales");
  expect_same_bytes(found, l.value_means_at(bh), alone, a.value_means_at(head),
                    kDim * sizeof(float), "means");
  expect_same_bytes(found, l.head_rule_at(bh), alone, a.head_rule_at(head),
                    sizeof(numerics::HeadRule), "rule");
  expect_same_bytes(found, l.smoothing_shift_at(bh, 0), alone, a.smoothing_shift_at(head, 0),
                    static_cast<std::size_t>(a.queries) * sizeof(float), "shifts");
}

/// Of a head without keys: what multiplies sums of nothing.
void expect_no_scales(const Prepared& prepared, std::int64_t bh) {
  float scales[numerics::kHeadDim];
  std::memcpy(scales, prepared.block.data() + prepared.layout.value_scales_at(bh), sizeof(scales));
  for (const float scale : scales) ASSERT_EQ(scale, 0.0f);
}

/// Returns the plans.
std::vector<numerics::HeadPlan> expect_preparation_without_others(const PrepareCase& c,
                                                                  const SelectionCase& selection) {
  SCOPED_TRACE(c.describe());
  CaseTensors tensors(c);
  spoil_other_keys(c, selection, tensors);
  schedule::PrepareRequest request = device_request(c, tensors);
  request.selection = view(selection, c.keys);
  DevicePreparation device(request);
  device.launch(nullptr);
  const Prepared found = device.result(nullptr);
  EXPECT_TRUE(device.guards_untouched());
  for (std::int64_t b = 0; b < c.batch; ++b) {
    const std::vector<std::int64_t> keys = selection.keys(c, b);
    schedule::SequenceBounds bounds;
    std::memcpy(
        &bounds,
        found.block.data() + found.layout.bounds + static_cast<std::size_t>(b) * sizeof(bounds),
        sizeof(bounds));
    EXPECT_EQ(bounds.keys, static_cast<std::int32_t>(keys.size()));
    EXPECT_EQ(bounds.queries, c.queries);
    if (keys.empty()) {
      for (std::int64_t h = 0; h < c.heads; ++h) expect_no_scales(found, b * c.heads + h);
      continue;
    }
    const SequenceAlone one(c, tensors, b, keys);
    DevicePreparation other(device_request(one.inputs, one.tensors));
    other.launch(nullptr);
    const Prepared alone = other.result(nullptr);
    for (std::int64_t h = 0; h < c.heads; ++h) expect_same_head(found, alone, b, h, c.heads);
  }
  return found.plans;
}

PrepareCase small_case() {
  PrepareCase c;
  c.heads = 1;
  c.batch = 3;
  c.queries = 40;
  c.keys = 400;
  c.with_log_sum_exp = true;
  c.numerics.max_extra_steps = 1;
  c.numerics.score_error_target = 0.0f;
  return c;
}

TEST(ModelSelectedKeys, Lengths) {
  PrepareCase c = small_case();
  expect_preparation_without_others(c, {.lengths = {257, 0, 400}});
  c.numerics.value_scale = ValueScale::per_head;
  expect_preparation_without_others(c, {.lengths = {257, 0, 400}});
}

TEST(ModelSelectedKeys, TooFewKeysForAxes) {
  PrepareCase c = small_case();
  c.batch = 1;
  c.keys = 4300;
  c.family = Family::outliers;
  c.numerics.max_extra_steps = 0;
  c.numerics.value_axes = Choice::always;
  const auto plans = expect_preparation_without_others(c, {.lengths = {4000}});
  EXPECT_EQ(plans.front().values_on_axes, 0);
}

TEST(ModelSelectedKeys, Masks) {
  PrepareCase c = small_case();
  expect_preparation_without_others(c, {.mask = random_mask(c, 0.5)});
  c.head_dim = 64;
  c.batch = 1;
  expect_preparation_without_others(c, {.mask = random_mask(c, 0.03)});
  expect_preparation_without_others(c, {.lengths = {150}, .mask = random_mask(c, 0.6)});
}

TEST(ModelSelectedKeys, OnAxes) {
  PrepareCase c = small_case();
  c.family = Family::outliers;
  c.numerics.rotation = Choice::always;
  const auto plans = expect_preparation_without_others(c, {.lengths = {257, 0, 400}});
  EXPECT_NE(plans.front().scores.axes, 0);
  c.batch = 1;
  const auto masked = expect_preparation_without_others(c, {.mask = random_mask(c, 0.7)});
  EXPECT_NE(masked.front().scores.axes, 0);
}

TEST(ModelSelectedKeys, ValuesOnAxes) {
  PrepareCase c = small_case();
  c.batch = 1;
  c.keys = 4300;
  c.family = Family::outliers;
  c.numerics.max_extra_steps = 0;
  c.numerics.value_axes = Choice::always;
  const auto plans = expect_preparation_without_others(c, {.mask = random_mask(c, 0.97)});
  EXPECT_NE(plans.front().values_on_axes, 0);
}

}  // namespace
}  // namespace openvc::test
