// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "numerics/e4m3.hpp"
#include "numerics/online_softmax.hpp"
#include "schedule/prepared_layout.hpp"
#include "schedule/traversal.hpp"

namespace openvc::test {

/// One output row and its log-sum-exp, computed from prepared bytes in host memory by the letter of
/// the contract, with exact products. What device kernels are compared with.
struct ContractRow {
  std::vector<double> output;
  double log_sum_exp = 0.0;
  double exact_log_sum_exp = 0.0;  // of the same binary16 scores, without ExpCast
};

inline ContractRow contract_row(const schedule::PreparedView& inputs, std::int64_t batch_head,
                                std::int64_t query) {
  using namespace numerics;
  const schedule::Problem& p = inputs.problem;
  const auto* data = reinterpret_cast<const std::uint8_t*>(inputs.data);
  const schedule::PreparedLayout& layout = inputs.layout;
  const auto& rule =
      *reinterpret_cast<const HeadRule*>(inputs.data + layout.head_rule_at(batch_head));
  const auto* scales =
      reinterpret_cast<const float*>(inputs.data + layout.value_scales_at(batch_head));
  const auto* means =
      reinterpret_cast<const float*>(inputs.data + layout.value_means_at(batch_head));
  const auto dot = [](const std::uint8_t* a, const std::uint8_t* b, int count) {
    double sum = 0.0;
    for (int i = 0; i < count; ++i) sum += double{kE4m3Values[a[i]]} * double{kE4m3Values[b[i]]};
    return sum;
  };
  const auto score = [&](std::int64_t key) {
    double sum = dot(data + layout.query_at(batch_head, query),
                     data + layout.key_at(batch_head, key), kHeadDim);
    for (int step = 0; step < rule.extra_steps; ++step) {
      sum += dot(data + layout.query_columns_at(step, batch_head, query),
                 data + layout.key_columns_at(step, batch_head, key), kColumnsPerStep);
    }
    return half_to_float(float_to_half(static_cast<float>(sum)));
  };
  const auto value = [&](std::int64_t key, int channel) {
    return double{kE4m3Values[data[layout.value_code_at(batch_head, channel, key)]]};
  };

  const double nats_per_unit = std::ldexp(std::log(2.0) / kE4m3CodesPerOctave, rule.score_exponent);
  RowState row = empty_row(rule);
  std::vector<double> sums(kHeadDim, 0.0);
  const schedule::TileSequence tiles = schedule::tile_sequence(p, query / kQueryBlock);
  const std::int64_t visible = schedule::visible_keys(p, query);
  double weight_sum = 0.0;
  double exact_sum = 0.0;  // relative to exact_top
  double exact_top = -double{infinity()};
  for (int step = 0; step < tiles.count; ++step) {
    const bool repair = tiles.is_repair(step);
    const std::int64_t block_index = tiles.block(step);
    std::vector<float> scores(kKeyBlock, -infinity());
    float top = kLeastTop;
    for (int j = 0; j < kKeyBlock; ++j) {
      const std::int64_t key = block_index * kKeyBlock + j;
      if (repair || key < visible) scores[j] = score(key);
      if (scores[j] > top) top = scores[j];
    }
    if (!repair && double{top} > exact_top) {
      exact_sum *= std::exp((exact_top - double{top}) * nats_per_unit);
      exact_top = double{top};
    }
    const BlockCast block = begin_block(row, top, rule);
    weight_sum *= double{block.rescale};
    for (double& sum : sums) sum *= double{block.rescale};
    for (int j = 0; j < kKeyBlock; ++j) {
      const bool counts = !repair && block_index * kKeyBlock + j < visible;
      if (counts) exact_sum += std::exp((double{scores[j]} - exact_top) * nats_per_unit);
      const std::uint8_t code = probability_code(scores[j], block, rule);
      if (code == 0) continue;
      const double weight = double{block.weight} * double{kE4m3Values[code]};
      if (!repair) weight_sum += weight;
      for (int c = 0; c < kHeadDim; ++c) sums[c] += weight * value(block_index * kKeyBlock + j, c);
    }
  }
  ContractRow result;
  result.output.assign(kHeadDim, 0.0);
  row.sum = static_cast<float>(weight_sum);
  if (visible > 0) {
    for (int c = 0; c < kHeadDim; ++c) {
      result.output[c] = sums[c] / weight_sum * double{scales[c]} + double{means[c]};
    }
  }
  float shift = 0.0f;
  if (inputs.with_log_sum_exp) {
    std::memcpy(&shift, inputs.data + layout.smoothing_shift_at(batch_head, query), sizeof(shift));
  }
  result.log_sum_exp =
      numerics::log_sum_exp(row, rule, static_cast<float>(std::log(weight_sum)), shift);
  result.exact_log_sum_exp = exact_top * nats_per_unit + std::log(exact_sum) + double{shift};
  return result;
}

}  // namespace openvc::test
