// SPDX-License-Identifier: BSD-3-Clause
#include "study/reference_numerics.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "numerics/contract.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/score_scale.hpp"
#include "schedule/mask.hpp"
#include "schedule/traversal.hpp"
#include "study/matrix_product.hpp"
#include "study/tensors.hpp"

namespace openvc::study {
namespace {

using numerics::kHeadDim;

// Constants of the published method.
constexpr std::int64_t kScaleBlock = 128;
constexpr std::int64_t kQueryBlock = 128;
constexpr std::int64_t kMidWindowBlocks = 4;
constexpr double kPeakCode = 120.0;
constexpr double kBeta = -0.35;
constexpr float kSmallestAmax = 1e-12f;

std::vector<float> load_rows(const TensorView& tensor, std::int64_t first, std::int64_t count) {
  std::vector<float> rows(static_cast<std::size_t>(count * kHeadDim));
  for (std::int64_t i = 0; i < count; ++i) {
    load_row(tensor, 0, first + i, 0, {rows.data() + i * kHeadDim, kHeadDim});
  }
  return rows;
}

float largest_magnitude(const std::vector<float>& values) {
  float largest = kSmallestAmax;
  for (const float x : values) largest = std::max(largest, std::abs(x));
  return largest;
}

/// From just right of the query's own block down to 0, then the rest from the last block downwards.
schedule::Traversal reference_order(const schedule::Problem& problem, std::int64_t query) {
  const std::int64_t blocks =
      numerics::ceil_div(schedule::visible_keys(problem, query), kScaleBlock);
  const std::int64_t last = std::max<std::int64_t>(blocks - 1, 0);
  if (problem.mask == Mask::causal) return {blocks, last};
  const std::int64_t query_blocks = numerics::ceil_div(problem.queries, kQueryBlock);
  const std::int64_t own = query / kQueryBlock * blocks / query_blocks;
  return {blocks, std::min(own + kMidWindowBlocks, last)};
}

float round_to_grid(float x, float amax) {
  return numerics::e4m3_decode(numerics::e4m3_encode(x * (numerics::kE4m3Max / amax)));
}

}  // namespace

ReferenceHead::ReferenceHead(const HeadInputs& inputs, std::span<const std::int64_t> rows)
    : problem_{.batch = 1,
               .heads = 1,
               .queries = inputs.q.shape[kSequence],
               .keys = inputs.k.shape[kSequence],
               .repair_rows = 0,
               .mask = inputs.mask,
               .key_order = KeyOrder::mid_window},
      gain_(numerics::kExactCodeUnitsPerNat * static_cast<double>(inputs.softmax_scale)),
      rows_(rows.begin(), rows.end()) {
  for (const std::int64_t row : rows_) {
    const std::int64_t first = row / kScaleBlock * kScaleBlock;
    const std::int64_t count = std::min(kScaleBlock, problem_.queries - first);
    const float amax = largest_magnitude(load_rows(inputs.q, first, count));
    for (const float x : load_rows(inputs.q, row, 1)) {
      query_codes_.push_back(round_to_grid(x, amax));
    }
    query_scales_.push_back(amax / numerics::kE4m3Max);
  }
  for (std::int64_t first = 0; first < problem_.keys; first += kScaleBlock) {
    const auto block = load_rows(inputs.k, first, std::min(kScaleBlock, problem_.keys - first));
    const float amax = largest_magnitude(block);
    for (const float x : block) key_codes_.push_back(round_to_grid(x, amax));
    key_scales_.push_back(amax / numerics::kE4m3Max);
  }
  const auto values = load_rows(inputs.v, 0, problem_.keys);
  const float amax = largest_magnitude(values);
  for (const float x : values) value_codes_.push_back(round_to_grid(x, amax));
  value_scale_ = amax / numerics::kE4m3Max;
}

void ReferenceHead::cast_row(std::int64_t query, const double* products, float query_scale,
                             double* weights, double& sum) const {
  const std::int64_t visible = schedule::visible_keys(problem_, query);
  const schedule::Traversal order = reference_order(problem_, query);
  const auto score = [&](std::int64_t j) {
    return products[j] * gain_ * query_scale *
           key_scales_[static_cast<std::size_t>(j / kScaleBlock)];
  };
  const auto bounds = [&](std::int64_t step) {
    const std::int64_t first = order.block(step) * kScaleBlock;
    return std::array{first, std::min(first + kScaleBlock, visible)};
  };
  double running_max = -INFINITY;
  std::vector<double> references;
  for (std::int64_t step = 0; step < order.blocks; ++step) {
    const auto [first, last] = bounds(step);
    for (std::int64_t j = first; j < last; ++j) running_max = std::max(running_max, score(j));
    references.push_back(running_max);
    for (std::int64_t j = first; j < last; ++j) {
      const double code = std::nearbyint(score(j) - running_max + kPeakCode + kBeta);
      weights[j] =
          numerics::kE4m3Values[static_cast<std::size_t>(std::clamp(code, 0.0, kPeakCode))];
    }
  }
  sum = 0.0;
  for (std::int64_t step = 0; step < order.blocks; ++step) {
    const auto [first, last] = bounds(step);
    const double factor = std::exp2((references[static_cast<std::size_t>(step)] - running_max) /
                                    numerics::kE4m3CodesPerOctave);
    for (std::int64_t j = first; j < last; ++j) {
      weights[j] *= factor;
      sum += weights[j];
    }
  }
}

std::vector<double> ReferenceHead::output(std::int64_t first, std::int64_t count) const {
  std::vector<double> products(static_cast<std::size_t>(count * problem_.keys));
  std::vector<double> weights(products.size());
  dot_products(query_codes_.data() + first * kHeadDim, count, key_codes_.data(), problem_.keys,
               kHeadDim, products.data());
  std::vector<double> sums(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto row = static_cast<std::size_t>(first + i);
    cast_row(rows_[row], products.data() + i * problem_.keys, query_scales_[row],
             weights.data() + i * problem_.keys, sums[static_cast<std::size_t>(i)]);
  }
  std::vector<double> averages(static_cast<std::size_t>(count * kHeadDim));
  add_weighted_sums(weights.data(), count, problem_.keys, value_codes_.data(), kHeadDim,
                    averages.data());
  for (std::size_t i = 0; i < averages.size(); ++i) {
    const double sum = sums[i / kHeadDim];
    averages[i] = sum > 0.0 ? averages[i] * value_scale_ / sum : 0.0;
  }
  return averages;
}

}  // namespace openvc::study
