// SPDX-License-Identifier: BSD-3-Clause
#include "unit/cpu/reference_attention.hpp"

#include <cmath>
#include <cstddef>
#include <cstring>

#include "numerics/e4m3.hpp"
#include "numerics/half.hpp"
#include "numerics/online_softmax.hpp"
#include "schedule/mask.hpp"
#include "schedule/traversal.hpp"

namespace openvc::cpu::testing {
namespace {

using numerics::kColumnsPerStep;
using numerics::kHeadDim;
using numerics::kKeyBlock;

double decode(const schedule::PreparedView& inputs, std::size_t section, std::int64_t index) {
  return numerics::e4m3_decode(
      std::to_integer<std::uint8_t>(inputs.data[section + static_cast<std::size_t>(index)]));
}

template <class T>
T load(const schedule::PreparedView& inputs, std::size_t section, std::int64_t index) {
  T value;
  std::memcpy(&value, inputs.data + section + static_cast<std::size_t>(index) * sizeof(T),
              sizeof(T));
  return value;
}

double score(const schedule::PreparedView& inputs, std::int64_t bh, std::int64_t query,
             std::int64_t key) {
  const schedule::PreparedLayout& layout = inputs.layout;
  const auto dot = [&](std::size_t query_row, std::size_t key_row, std::int64_t count) {
    double sum = 0.0;
    for (std::int64_t c = 0; c < count; ++c) {
      sum += decode(inputs, query_row, c) * decode(inputs, key_row, c);
    }
    return sum;
  };
  double sum = dot(layout.query_at(bh, query), layout.key_at(bh, key), kHeadDim);
  const auto rule = load<numerics::HeadRule>(inputs, layout.head_rules, bh);
  for (int step = 0; step < rule.extra_steps; ++step) {
    sum += dot(layout.query_columns_at(step, bh, query), layout.key_columns_at(step, bh, key),
               kColumnsPerStep);
  }
  return sum;
}

float half_of(double x) {
  return numerics::half_to_float(numerics::float_to_half(static_cast<float>(x)));
}

class Row {
 public:
  Row(const schedule::PreparedView& inputs, std::int64_t bh, std::int64_t query)
      : inputs_(inputs), bh_(bh), query_(query), sums_(kHeadDim) {
    rule_ = load<numerics::HeadRule>(inputs, inputs.layout.head_rules, bh);
    state_ = numerics::empty_row(rule_);
  }

  /// Keys [first, first + count) of the head's key rows; the others of the block do not exist.
  void visit(std::int64_t first, std::int64_t count, bool repair) {
    if (count <= 0) return;
    std::vector<float> scores;
    float top = numerics::kLeastTop;
    for (std::int64_t i = 0; i < count; ++i) {
      const double exact = score(inputs_, bh_, query_, first + i);
      // Bound of the error of a sum in binary32 whose terms are as large as its result, roughly.
      const double slack = std::fabs(exact) * 1e-5 + 1e-5;
      if (half_of(exact - slack) != half_of(exact + slack)) ++ambiguous_;
      scores.push_back(half_of(exact));
      if (scores.back() > top) top = scores.back();
    }
    const numerics::BlockCast block = numerics::begin_block(state_, top, rule_);
    for (double& sum : sums_) sum *= block.rescale;
    double block_sum = 0.0;
    for (std::int64_t i = 0; i < count; ++i) {
      const double probability = numerics::e4m3_decode(
          numerics::probability_code(scores[static_cast<std::size_t>(i)], block, rule_));
      block_sum += probability;
      const std::int64_t key = first + i;
      for (int c = 0; c < kHeadDim; ++c) {
        sums_[static_cast<std::size_t>(c)] +=
            block.weight * probability *
            decode(inputs_, inputs_.layout.value_code_at(bh_, c, key), 0);
      }
    }
    if (!repair) numerics::end_block(state_, block, static_cast<float>(block_sum));
  }

  [[nodiscard]] ReferenceRow finish() const {
    ReferenceRow row;
    row.ambiguous_scores = ambiguous_;
    const schedule::PreparedLayout& layout = inputs_.layout;
    for (std::int64_t c = 0; c < kHeadDim; ++c) {
      const double scale = load<float>(inputs_, layout.value_scales, bh_ * kHeadDim + c);
      const double mean = load<float>(inputs_, layout.value_means, bh_ * kHeadDim + c);
      row.out.push_back(state_.sum == 0.0f
                            ? 0.0
                            : sums_[static_cast<std::size_t>(c)] / state_.sum * scale + mean);
    }
    const float shift =
        inputs_.with_log_sum_exp
            ? load<float>(inputs_, layout.smoothing_shifts, bh_ * inputs_.problem.queries + query_)
            : 0.0f;
    row.log_sum_exp = numerics::log_sum_exp(state_, rule_, std::log(state_.sum), shift);
    return row;
  }

 private:
  const schedule::PreparedView& inputs_;
  std::int64_t bh_;
  std::int64_t query_;
  numerics::HeadRule rule_;
  numerics::RowState state_;
  std::vector<double> sums_;
  int ambiguous_ = 0;
};

}  // namespace

ReferenceRow reference_attention(const schedule::PreparedView& inputs, std::int64_t bh,
                                 std::int64_t query) {
  const schedule::Problem& p = inputs.problem;
  const schedule::Traversal traversal = schedule::traversal(p, query / numerics::kQueryBlock);
  Row row(inputs, bh, query);
  for (std::int64_t step = 0; step < traversal.blocks; ++step) {
    const std::int64_t first = traversal.block(step) * kKeyBlock;
    const std::int64_t count = schedule::visible_keys(p, query) - first;
    row.visit(first, count < kKeyBlock ? count : kKeyBlock, false);
  }
  for (std::int64_t block = 0; block < p.repair_blocks(); ++block) {
    const std::int64_t count = p.repair_rows - block * kKeyBlock;
    row.visit((p.key_blocks() + block) * kKeyBlock, count < kKeyBlock ? count : kKeyBlock, true);
  }
  return row.finish();
}

}  // namespace openvc::cpu::testing
