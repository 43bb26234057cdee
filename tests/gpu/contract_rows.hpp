// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "numerics/e4m3.hpp"
#include "numerics/online_softmax.hpp"
#include "schedule/prepared_layout.hpp"
#include "schedule/traversal.hpp"

namespace openvc::testing {

/// One output row and its log-sum-exp, computed from prepared bytes in host memory by the letter of
/// the contract, with exact products. The yardstick of every device kernel.
struct ContractRow {
  std::vector<double> output;
  double log_sum_exp = 0.0;
};

inline ContractRow contract_row(const schedule::PreparedView& inputs, std::int64_t batch_head,
                                std::int64_t query) {
  using namespace numerics;
  const schedule::Problem& p = inputs.problem;
  const auto* data = reinterpret_cast<const std::uint8_t*>(inputs.data);
  const auto* rules =
      reinterpret_cast<const schedule::HeadRule*>(inputs.data + inputs.layout.head_rules);
  const auto* scales = reinterpret_cast<const float*>(inputs.data + inputs.layout.value_scales);
  const auto* means = reinterpret_cast<const float*>(inputs.data + inputs.layout.value_means);
  const schedule::HeadRule& head = rules[batch_head];
  const ProbabilityRule rule{head.score_exponent, head.tail_correction != 0};
  const std::int64_t query_rows = p.padded_queries();
  const std::int64_t key_rows = p.padded_keys();
  const auto dot = [](const std::uint8_t* a, const std::uint8_t* b, int count) {
    double sum = 0.0;
    for (int i = 0; i < count; ++i) sum += double{kE4m3Values[a[i]]} * double{kE4m3Values[b[i]]};
    return sum;
  };
  const auto score = [&](std::int64_t key) {
    double sum =
        dot(data + inputs.layout.query_codes + (batch_head * query_rows + query) * kHeadDim,
            data + inputs.layout.key_codes + (batch_head * key_rows + key) * kHeadDim, kHeadDim);
    for (int step = 0; step < head.extra_steps; ++step) {
      const std::int64_t plane = step * p.batch_heads() + batch_head;
      sum +=
          dot(data + inputs.layout.query_columns + (plane * query_rows + query) * kColumnsPerStep,
              data + inputs.layout.key_columns + (plane * key_rows + key) * kColumnsPerStep,
              kColumnsPerStep);
    }
    return half_to_float(float_to_half(static_cast<float>(sum)));
  };
  const auto value = [&](std::int64_t key, int channel) {
    return double{kE4m3Values[data[inputs.layout.value_codes +
                                   schedule::value_code_offset(p, batch_head, channel, key)]]};
  };

  RowState row;
  std::vector<double> sums(kHeadDim, 0.0);
  const schedule::Traversal order = schedule::traversal(p, query / kQueryBlock);
  const std::int64_t visible = schedule::visible_keys(p, query);
  const std::int64_t blocks = order.blocks + (order.blocks > 0 ? p.repair_blocks() : 0);
  double weight_sum = 0.0;
  for (std::int64_t step = 0; step < blocks; ++step) {
    const bool repair = step >= order.blocks;
    const std::int64_t block = repair ? p.key_blocks() + step - order.blocks : order.block(step);
    std::vector<float> scores(kKeyBlock, -infinity());
    for (int j = 0; j < kKeyBlock; ++j) {
      const std::int64_t key = block * kKeyBlock + j;
      if (repair || key < visible) scores[j] = score(key);
    }
    if (!repair) {
      float block_max = -infinity();
      for (const float s : scores) block_max = s > block_max ? s : block_max;
      const double factor = raise_row_max(row, block_max, rule);
      weight_sum *= factor;
      for (double& sum : sums) sum *= factor;
    }
    for (int j = 0; j < kKeyBlock; ++j) {
      const std::uint8_t code = probability_code(scores[j], row, rule);
      if (code == 0) continue;
      const double weight = kE4m3Values[code];
      if (!repair) weight_sum += weight;
      for (int c = 0; c < kHeadDim; ++c) sums[c] += weight * value(block * kKeyBlock + j, c);
    }
  }
  ContractRow result;
  result.output.assign(kHeadDim, 0.0);
  row.sum = static_cast<float>(weight_sum);
  if (visible > 0) {
    for (int c = 0; c < kHeadDim; ++c) {
      const std::int64_t channel = batch_head * kHeadDim + c;
      result.output[c] = sums[c] / weight_sum * double{scales[channel]} + double{means[channel]};
    }
  }
  const auto* shifts = reinterpret_cast<const float*>(inputs.data + inputs.layout.smoothing_shifts);
  const float shift = inputs.with_log_sum_exp ? shifts[batch_head * p.queries + query] : 0.0f;
  result.log_sum_exp =
      log_sum_exp(row, static_cast<float>(std::log(weight_sum)), shift, head.excess_exponent);
  return result;
}

}  // namespace openvc::testing
