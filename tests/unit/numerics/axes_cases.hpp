// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "numerics/moments.hpp"
#include "numerics/token_sample.hpp"
#include "unit/numerics/sweep.hpp"

// Heads with known second moments, and their moments in float64.
namespace openvc::numerics::testing {

using Rows = std::vector<std::array<float, kHeadDim>>;

/// Runs tasks one column at a time and backwards: a task that needed another of its step, or a sum
/// whose shape followed the width of the team, would give other bits than SerialTeam.
struct ReverseTeam {
  static constexpr int kWidth = 1;
  static constexpr int kProductWidth = 4;

  template <class Task>
  void run(int tasks, const Task& task) const {
    for (int i = tasks - 1; i >= 0; --i) task(i);
  }
  [[nodiscard]] const Moments& fetch(const Moments& moments) const { return moments; }
};

inline std::unique_ptr<Moments> moments_of(const Rows& rows, bool centred) {
  auto moments = std::make_unique<Moments>();
  *moments = {};
  for (int c = 0; c < kHeadDim; ++c) {
    float max = -infinity();
    float min = infinity();
    for (const auto& row : rows) {
      const float x = row[static_cast<std::size_t>(c)];
      max = x > max ? x : max;
      min = x < min ? x : min;
    }
    moments->scales[c] = moment_scale(min, max, centred);
  }
  for (const auto& row : rows) {
    std::array<std::int32_t, kHeadDim> codes{};
    for (int c = 0; c < kHeadDim; ++c) {
      const MomentScale& scale = moments->scales[c];
      codes[static_cast<std::size_t>(c)] =
          moment_code(row[static_cast<std::size_t>(c)], scale.centre, scale.multiplier());
      moments->sums[c] += codes[static_cast<std::size_t>(c)];
    }
    for (int i = 0; i < kHeadDim; ++i) {
      for (int j = 0; j < kHeadDim; ++j) {
        moments->gram[i * kHeadDim + j] +=
            codes[static_cast<std::size_t>(i)] * codes[static_cast<std::size_t>(j)];
      }
    }
  }
  return moments;
}

/// Second moments over their trace, in float64.
inline std::vector<double> exact_moments(const Rows& rows, bool centred) {
  std::array<double, kHeadDim> means{};
  if (centred) {
    for (const auto& row : rows) {
      for (std::size_t c = 0; c < kHeadDim; ++c) means[c] += double{row[c]} / double(rows.size());
    }
  }
  std::vector<double> result(std::size_t{kHeadDim} * kHeadDim);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < kHeadDim; ++i) {
      for (std::size_t j = 0; j < kHeadDim; ++j) {
        result[i * kHeadDim + j] += (row[i] - means[i]) * (row[j] - means[j]);
      }
    }
  }
  double trace = 0.0;
  for (std::size_t c = 0; c < kHeadDim; ++c) trace += result[c * kHeadDim + c];
  for (double& x : result) x /= trace;
  return result;
}

struct AxesCase {
  std::string name;
  Rows query;
  Rows key;
};

/// Rows x = z A, z with standard deviations `sizes`.
inline Rows mixed_rows(Random& random, int tokens, const std::function<double(int)>& size,
                       bool rotated, double offset = 0.0) {
  std::vector<double> mix(std::size_t{kHeadDim} * kHeadDim);
  for (double& x : mix) x = random.normal() / std::sqrt(double{kHeadDim});
  Rows rows(static_cast<std::size_t>(tokens));
  for (auto& row : rows) {
    std::array<double, kHeadDim> z{};
    for (int c = 0; c < kHeadDim; ++c) z[static_cast<std::size_t>(c)] = random.normal() * size(c);
    for (std::size_t c = 0; c < kHeadDim; ++c) {
      double x = z[c];
      if (rotated) {
        x = 0.0;
        for (std::size_t i = 0; i < kHeadDim; ++i) x += z[i] * mix[i * kHeadDim + c];
      }
      row[c] = static_cast<float>(x + offset);
    }
  }
  return rows;
}

inline std::vector<AxesCase> axes_cases() {
  Random random(11);
  const auto flat = [](int) { return 1.0; };
  const auto steep = [](int c) { return std::exp(-0.1 * c); };
  const auto low_rank = [](int c) { return c < 5 ? 3.0 : 0.0; };
  const auto outlier = [](int c) { return c == 7 ? 1e4 : 1.0; };
  const auto pair = [&](const std::string& name, const std::function<double(int)>& size,
                        bool rotated, double scale = 1.0, int tokens = 300, double offset = 0.0) {
    const auto scaled = [&](int c) { return scale * size(c); };
    return AxesCase{name, mixed_rows(random, tokens, scaled, rotated),
                    mixed_rows(random, tokens, scaled, rotated, offset)};
  };
  std::vector<AxesCase> cases;
  cases.push_back(pair("white", flat, false));
  cases.push_back(pair("steep", steep, true));
  cases.push_back(pair("steep_channels", steep, false, 1.0, 300, 6.0));
  cases.push_back(pair("low_rank", low_rank, true));
  cases.push_back(pair("low_rank_channels", low_rank, false));
  cases.push_back(pair("outlier_channel", outlier, false));
  cases.push_back(pair("huge", steep, true, 1e34));
  cases.push_back(pair("tiny", steep, true, 1e-25));
  cases.push_back(pair("few_tokens", steep, true, 1.0, 3));
  AxesCase token = pair("outlier_token", flat, false);
  for (float& x : token.query[17]) x *= 1e4f;
  for (float& x : token.key[17]) x *= 1e4f;
  cases.push_back(std::move(token));
  return cases;
}

}  // namespace openvc::numerics::testing
