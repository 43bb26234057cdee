// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "study/emulation.hpp"
#include "study/int8_form.hpp"
#include "study/prepared_head.hpp"

// Scores of Q and K in INT8, for comparison only: no backend computes them. K loses its mean, then
// code = round_half_even(127 x / amax) with the largest magnitude of the rows that share the scale.
// Products of codes are exact.
namespace openvc::study {

class Int8Head {
 public:
  /// `rows` are the queries that scores() may be asked for.
  Int8Head(const HeadInputs& inputs, std::span<const std::int64_t> rows, const Int8Form& form);

  /// Scores of the queries rows[first], ..., rows[first + count - 1] with all keys.
  [[nodiscard]] Scores scores(std::int64_t first, std::int64_t count) const;

 private:
  void round_queries(const TensorView& q, const Int8Form& form);
  void round_keys(const TensorView& k, const Int8Form& form);

  double gain_;  // code units for a product of rotated rows
  std::span<const std::int64_t> rows_;
  std::int64_t keys_;
  std::vector<float> query_codes_;   // [rows][kHeadDim]
  std::vector<float> query_scales_;  // [rows]
  std::vector<float> key_codes_;     // [keys][kHeadDim]
  std::vector<float> key_scales_;    // [keys]
};

}  // namespace openvc::study
