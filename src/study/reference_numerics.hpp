// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/problem.hpp"
#include "study/prepared_head.hpp"

// The numerics that VC-Attention and Open-VC Attention publish, for comparison only. Nothing of it
// is part of this library's contract.
//
// Q and K: E4M3 with one scale, amax / 448, per block of 128 tokens; neither smoothed nor rotated.
// V: E4M3 with one scale per head. Probabilities: code = clamp(round(s + 120 + beta), 0, 120),
// where s <= 0 counts 1/8 octaves below the running row maximum and beta = -0.35. All sums are
// float64.
namespace openvc::study {

class ReferenceHead {
 public:
  /// `rows` are the queries that averages() may be asked for.
  ReferenceHead(const HeadInputs& inputs, std::span<const std::int64_t> rows);

  /// Output for the queries rows[first], ..., rows[first + count - 1]; [count][kHeadDim].
  [[nodiscard]] std::vector<double> output(std::int64_t first, std::int64_t count) const;

 private:
  void cast_row(std::int64_t query, const double* products, float query_scale, double* weights,
                double& sum) const;

  schedule::Problem problem_{};
  double gain_ = 1.0;  // code units per unit of q.k
  std::vector<std::int64_t> rows_;
  std::vector<float> query_codes_;   // [rows][kHeadDim]
  std::vector<float> query_scales_;  // [rows]
  std::vector<float> key_codes_;     // [keys][kHeadDim]
  std::vector<float> key_scales_;    // [key blocks]
  std::vector<float> value_codes_;   // [keys][kHeadDim]
  float value_scale_ = 0.0f;
};

}  // namespace openvc::study
