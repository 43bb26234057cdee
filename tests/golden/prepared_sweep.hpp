// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "numerics/head_plan.hpp"
#include "numerics/repair.hpp"
#include "schedule/prepare_request.hpp"
#include "unit/cpu/test_tensor.hpp"

// The preparations whose bytes are golden. Inputs come from integer arithmetic and single float
// operations, so they are the same on every machine.
namespace openvc::golden {

struct PreparedCase {
  std::string name;
  ElementType type = ElementType::bfloat16;
  std::int64_t batch = 1;
  std::int64_t heads = 2;
  std::int64_t queries = 200;
  std::int64_t keys = 200;
  float query_scale = 1.0f;
  float key_offset = 0.0f;
  float value_offset = 0.0f;
  int outlier_channels = 0;  ///< of Q and K, 20 times the others
  double repair_budget = 0.0;
  bool with_log_sum_exp = false;
  NumericOptions numerics{};
};

inline std::vector<PreparedCase> prepared_cases() {
  NumericOptions plain;
  plain.smooth_keys = plain.smooth_values = false;
  plain.rotation = Choice::never;
  plain.max_extra_steps = 0;
  plain.value_scale = ValueScale::per_head;
  NumericOptions four_steps;
  four_steps.max_extra_steps = 4;
  four_steps.score_error_target = 0.0f;
  NumericOptions rotated;
  rotated.rotation = Choice::always;
  rotated.max_extra_steps = 0;
  NumericOptions values_on_axes;
  values_on_axes.value_axes = Choice::always;
  NumericOptions on_axes;
  on_axes.rotation = Choice::always;
  on_axes.score_error_target = 0.0f;
  return {
      {.name = "normal"},
      {.name = "long",
       .heads = 1,
       .queries = 18'000,
       .keys = 17'000,
       .query_scale = 4.0f,
       .with_log_sum_exp = true},
      {.name = "flat", .queries = 1'000, .keys = 1'000, .query_scale = 0.3f},
      {.name = "offsets", .key_offset = 6.0f, .value_offset = 3.0f, .with_log_sum_exp = true},
      {.name = "outliers",
       .type = ElementType::float16,
       .queries = 333,
       .keys = 333,
       .outlier_channels = 5},
      {.name = "large_logits", .query_scale = 3e4f, .with_log_sum_exp = true},
      {.name = "cross", .batch = 2, .heads = 3, .queries = 1, .keys = 129},
      {.name = "one_key", .queries = 257, .keys = 1},
      {.name = "repair", .queries = 100, .keys = 1'000, .repair_budget = 0.15},
      {.name = "plain", .outlier_channels = 5, .numerics = plain},
      {.name = "four_steps", .outlier_channels = 30, .numerics = four_steps},
      {.name = "rotated", .outlier_channels = 1, .numerics = rotated},
      {.name = "value_axes",
       .queries = 60,
       .keys = 4'200,
       .value_offset = 3.0f,
       .numerics = values_on_axes},
      {.name = "axes", .queries = 300, .keys = 2'500, .outlier_channels = 7, .numerics = on_axes},
  };
}

/// Q, K and V of a case in host memory.
struct PreparedInputs {
  test::TestTensor q;
  test::TestTensor k;
  test::TestTensor v;

  explicit PreparedInputs(const PreparedCase& c)
      : q(make(c, c.queries, 1, c.query_scale, 0.0f, c.outlier_channels)),
        k(make(c, c.keys, 2, 1.0f, c.key_offset, c.outlier_channels)),
        v(make(c, c.keys, 3, 1.0f, c.value_offset, 0)) {}

 private:
  static test::TestTensor make(const PreparedCase& c, std::int64_t tokens, std::uint64_t seed,
                               float scale, float offset, int outliers) {
    constexpr std::int64_t kOutlierStride = 7;
    constexpr float kOutlier = 20.0f;
    test::TestTensor tensor(c.type, {c.batch, tokens, c.heads, numerics::kHeadDim});
    test::Random random(seed);
    tensor.fill([&](auto, auto, auto, std::int64_t channel) {
      const bool outlier = channel % kOutlierStride == 3 && channel / kOutlierStride < outliers;
      return (random.normal() + offset) * scale * (outlier ? kOutlier : 1.0f);
    });
    return tensor;
  }
};

inline schedule::PrepareRequest prepare_request(const PreparedCase& c, const TensorView& q,
                                                const TensorView& k, const TensorView& v,
                                                const schedule::PackedFormat& format) {
  schedule::PrepareRequest request;
  request.q = q;
  request.k = k;
  request.v = v;
  request.problem.batch = c.batch;
  request.problem.heads = c.heads;
  request.problem.queries = c.queries;
  request.problem.keys = c.keys;
  request.problem.repair_rows = numerics::repair_row_count(c.repair_budget, c.keys);
  request.softmax_scale = 0.08838834764831845f;
  request.numerics = c.numerics;
  request.with_log_sum_exp = c.with_log_sum_exp;
  request.format = format;
  return request;
}

/// Compares every section of prepared bytes, what has no meaning left out, and the plans. Codes of
/// heads on axes are golden for the CPU alone: other backends may differ at ties.
inline void expect_golden_prepared(const PreparedCase& c, const schedule::PrepareRequest& request,
                                   const std::byte* block,
                                   std::span<const numerics::HeadPlan> plans) {
  const bool with_scores =
      request.q.device.type == DeviceType::cpu ||
      std::none_of(plans.begin(), plans.end(),
                   [](const numerics::HeadPlan& plan) { return plan.scores.axes != 0; });
  const schedule::Problem& p = request.problem;
  const schedule::PreparedLayout layout = schedule::prepared_layout(request);
  const auto section = [&](const char* name, const Hash& hash) {
    expect_golden("prepared/" + c.name + "/" + name, hash.result());
  };
  const auto bytes = [&](std::size_t begin, std::int64_t size) {
    return Hash{}.bytes(block + begin, static_cast<std::size_t>(size));
  };
  const std::int64_t heads = p.batch_heads();
  if (with_scores) {
    section("query_codes", bytes(layout.query_codes, heads * layout.query_rows * p.head_dim));
    section("key_codes", bytes(layout.key_codes, heads * layout.key_rows * p.head_dim));
  }
  const bool with_values =
      request.q.device.type == DeviceType::cpu ||
      std::none_of(plans.begin(), plans.end(),
                   [](const numerics::HeadPlan& plan) { return plan.values_on_axes != 0; });
  if (with_values)
    section("value_codes",
            bytes(layout.value_codes, heads * p.padded_key_blocks() *
                                          static_cast<std::int64_t>(layout.value_block_bytes())));
  Hash query_columns;
  Hash key_columns;
  for (std::int64_t bh = 0; bh < heads; ++bh) {
    numerics::HeadRule rule;
    std::memcpy(&rule, block + layout.head_rule_at(bh), sizeof(rule));
    for (int step = 0; step < rule.extra_steps; ++step) {
      query_columns.bytes(block + layout.query_columns_at(step, bh, 0),
                          static_cast<std::size_t>(layout.query_rows) * numerics::kColumnsPerStep);
      key_columns.bytes(block + layout.key_columns_at(step, bh, 0),
                        static_cast<std::size_t>(layout.key_rows) * numerics::kColumnsPerStep);
    }
  }
  if (with_scores) {
    section("query_columns", query_columns);
    section("key_columns", key_columns);
  }
  section("head_rules", bytes(layout.head_rules, heads * 4));
  const std::int64_t channel_bytes = heads * p.head_dim * static_cast<std::int64_t>(sizeof(float));
  section("value_scales", bytes(layout.value_scales, channel_bytes));
  section("value_means", bytes(layout.value_means, channel_bytes));
  Hash bases;
  for (std::int64_t bh = 0; bh < heads; ++bh) {
    if (plans[static_cast<std::size_t>(bh)].values_on_axes == 0) continue;
    bases.bytes(block + layout.value_basis_at(bh), layout.value_basis_bytes());
  }
  section("value_bases", bases);
  if (request.with_log_sum_exp) {
    section("smoothing_shifts",
            bytes(layout.smoothing_shifts,
                  heads * p.queries * static_cast<std::int64_t>(sizeof(float))));
  }
  section("plans", Hash{}.bytes(plans.data(), plans.size_bytes()));
}

}  // namespace openvc::golden
