// SPDX-License-Identifier: BSD-3-Clause
#include "study/int8_scores.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "numerics/contract.hpp"
#include "numerics/hadamard.hpp"
#include "numerics/score_scale.hpp"
#include "study/matrix_product.hpp"
#include "study/tensors.hpp"

namespace openvc::study {
namespace {

using numerics::kHeadDim;

constexpr float kInt8Max = 127.0f;
constexpr float kSmallestInt8Amax = 1e-12f;

using Channels = std::array<float, kHeadDim>;

/// Rows first, ..., first + count - 1 minus `offset`, rotated if asked for.
std::vector<float> load_block(const TensorView& tensor, std::int64_t first, std::int64_t count,
                              const Channels& offset, bool rotated) {
  std::vector<float> rows(static_cast<std::size_t>(count * kHeadDim));
  for (std::int64_t i = 0; i < count; ++i) {
    float* const row = rows.data() + i * kHeadDim;
    load_row(tensor, 0, first + i, 0, {row, kHeadDim});
    for (std::size_t c = 0; c < kHeadDim; ++c) row[c] -= offset[c];
    if (rotated) numerics::hadamard(row);
  }
  return rows;
}

Channels mean_of_rows(const TensorView& tensor) {
  const std::int64_t tokens = tensor.shape[kSequence];
  std::array<double, kHeadDim> sums{};
  Channels row{};
  for (std::int64_t s = 0; s < tokens; ++s) {
    load_row(tensor, 0, s, 0, row);
    for (std::size_t c = 0; c < kHeadDim; ++c) sums[c] += row[c];
  }
  Channels mean{};
  for (std::size_t c = 0; c < kHeadDim; ++c) {
    mean[c] = static_cast<float>(sums[c] / static_cast<double>(tokens));
  }
  return mean;
}

float scale_of(std::span<const float> rows) {
  float largest = kSmallestInt8Amax;
  for (const float x : rows) largest = std::max(largest, std::abs(x));
  return largest / kInt8Max;
}

void append_codes(std::span<const float> rows, float scale, std::vector<float>& codes) {
  for (const float x : rows) codes.push_back(std::nearbyint(x / scale));
}

}  // namespace

Int8Head::Int8Head(const HeadInputs& inputs, std::span<const std::int64_t> rows,
                   const Int8Form& form)
    : gain_(numerics::kExactCodeUnitsPerNat * static_cast<double>(inputs.softmax_scale) /
            (form.rotated ? kHeadDim : 1)),
      rows_(rows),
      keys_(inputs.k.shape[kSequence]) {
  round_queries(inputs.q, form);
  round_keys(inputs.k, form);
}

void Int8Head::round_queries(const TensorView& q, const Int8Form& form) {
  for (const std::int64_t row : rows_) {
    const std::int64_t first = row / form.query_rows * form.query_rows;
    const std::int64_t count = std::min(form.query_rows, q.shape[kSequence] - first);
    const std::vector<float> block = load_block(q, first, count, Channels{}, form.rotated);
    query_scales_.push_back(scale_of(block));
    append_codes(
        std::span(block).subspan(static_cast<std::size_t>((row - first) * kHeadDim), kHeadDim),
        query_scales_.back(), query_codes_);
  }
}

void Int8Head::round_keys(const TensorView& k, const Int8Form& form) {
  const Channels mean = mean_of_rows(k);
  for (std::int64_t first = 0; first < keys_; first += form.key_rows) {
    const std::int64_t count = std::min(form.key_rows, keys_ - first);
    const std::vector<float> block = load_block(k, first, count, mean, form.rotated);
    const float scale = scale_of(block);
    key_scales_.insert(key_scales_.end(), static_cast<std::size_t>(count), scale);
    append_codes(block, scale, key_codes_);
  }
}

Scores Int8Head::scores(std::int64_t first, std::int64_t count) const {
  Scores found{
      .rows = rows_.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)),
      .keys = keys_,
      .values = std::vector<double>(static_cast<std::size_t>(count * keys_))};
  dot_products(query_codes_.data() + first * kHeadDim, count, key_codes_.data(), keys_, kHeadDim,
               found.values.data());
  for (std::int64_t i = 0; i < count; ++i) {
    const double gain = gain_ * double{query_scales_[static_cast<std::size_t>(first + i)]};
    for (std::int64_t j = 0; j < keys_; ++j) {
      found.values[static_cast<std::size_t>(i * keys_ + j)] *=
          gain * double{key_scales_[static_cast<std::size_t>(j)]};
    }
  }
  return found;
}

}  // namespace openvc::study
