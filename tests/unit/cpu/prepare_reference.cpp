// SPDX-License-Identifier: BSD-3-Clause
#include "unit/cpu/prepare_reference.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>

#include "cpu/load_row.hpp"
#include "numerics/canonical_sum.hpp"
#include "numerics/hadamard.hpp"
#include "numerics/half.hpp"
#include "numerics/orthogonal_basis.hpp"
#include "numerics/plan_scores.hpp"
#include "numerics/principal_axes.hpp"
#include "numerics/qk_quantize.hpp"
#include "numerics/repair.hpp"
#include "numerics/token_sample.hpp"
#include "numerics/v_quantize.hpp"
#include "unit/numerics/axes_cases.hpp"

namespace openvc::test {
namespace {

using namespace numerics;
using Row = std::array<float, kHeadDim>;
using Rows = std::vector<Row>;

Rows load(const TensorView& tensor, std::int64_t b, std::int64_t h) {
  Rows rows(static_cast<std::size_t>(tensor.shape[kSequence]));
  for (std::size_t s = 0; s < rows.size(); ++s) {
    cpu::load_row(tensor, b, static_cast<std::int64_t>(s), h, rows[s].data());
  }
  return rows;
}

float channel_sum(const Rows& rows, std::size_t c) {
  std::vector<float> values;
  for (const Row& row : rows) values.push_back(row[c]);
  return sum_tree(static_cast<std::int64_t>(values.size()),
                  [&](std::int64_t i) -> float& { return values[static_cast<std::size_t>(i)]; });
}

float channel_squares(const Rows& rows, std::size_t c) {
  std::vector<float> groups;
  for (std::size_t first = 0; first < rows.size(); first += kReductionGroup) {
    const auto count =
        static_cast<int>(std::min<std::size_t>(rows.size() - first, kReductionGroup));
    groups.push_back(sum_squares_group(
        count, [&](int i) { return rows[first + static_cast<std::size_t>(i)][c]; }));
  }
  return sum_tree(static_cast<std::int64_t>(groups.size()),
                  [&](std::int64_t i) -> float& { return groups[static_cast<std::size_t>(i)]; });
}

float row_squares(const Row& row) {
  return row_sum_squares([&](int c) { return row[static_cast<std::size_t>(c)]; });
}

Extent extent_of(const Rows& rows) {
  Extent extent;
  for (const Row& row : rows) {
    for (const float x : row)
      extent.magnitude_bits = std::max(extent.magnitude_bits, magnitude_bits(x));
    extent.row_sum_squares = std::max(extent.row_sum_squares, row_squares(row));
  }
  return extent;
}

/// One head of prepared inputs under construction.
class Head {
 public:
  Head(const schedule::PrepareRequest& request, PreparedBytes& out, std::int64_t b, std::int64_t h)
      : request_(request),
        problem_(request.problem),
        out_(out),
        head_(b * request.problem.heads + h),
        q_(load(request.q, b, h)),
        k_(load(request.k, b, h)),
        v_(load(request.v, b, h)) {}

  void run() {
    plan();
    queries();
    keys();
    values();
    if (problem_.repair_rows > 0) repair();
  }

 private:
  void plan() {
    ScoreStatistics statistics;
    statistics.query = extent_of(q_);
    statistics.key = extent_of(k_);
    for (std::size_t c = 0; c < kHeadDim; ++c) {
      statistics.query_squares[c] = channel_squares(q_, c);
      statistics.key_sums[c] = channel_sum(k_, c);
      statistics.key_squares[c] = channel_squares(k_, c);
    }
    if (can_rotate(statistics.query, statistics.key)) find_axes(statistics.axes);
    plan_scores(statistics, problem_.queries, problem_.keys, request_.softmax_scale,
                request_.numerics, plan_);
    openvc::HeadPlan& description = out_.plans[static_cast<std::size_t>(head_)];
    description.extra_steps = plan_.scores.extra_steps;
    description.rotated = plan_.scores.rotated != 0 || plan_.scores.axes != 0;
    if (plan_.scores.axes != 0) find_basis();
    description.score_exponent = plan_.scores.score_exponent;
    description.predicted_score_error = std::sqrt(plan_.scores.error_variance);
    plan_axes_of_values();
    const HeadRule rule = plan_.rule();
    std::memcpy(at(out_.layout.head_rules, head_ * 4), &rule, sizeof(rule));
    const bool finite = extent_of(v_).finite();
    float widest = 0.0f;
    std::array<float, kHeadDim> spreads{};
    for (std::size_t c = 0; c < kHeadDim; ++c) {
      ChannelRange range;
      range.sum = channel_sum(v_, c);
      for (const Row& row : v_) {
        range.max = std::max(range.max, row[c]);
        range.min = std::min(range.min, row[c]);
      }
      codes_[c].mean = request_.numerics.smooth_values ? channel_mean(range, problem_.keys) : 0.0f;
      spreads[c] = channel_spread(range, codes_[c].mean);
      widest = std::max(widest, spreads[c]);
    }
    for (std::size_t c = 0; c < kHeadDim; ++c) {
      const bool per_head = request_.numerics.value_scale == ValueScale::per_head;
      codes_[c] = channel_code(codes_[c].mean, per_head ? widest : spreads[c], finite);
      if (plan_.values_on_axes != 0) {
        codes_[c] = {plan_.value_means[c], plan_.value_scales[c], plan_.value_multipliers[c]};
      }
      const auto place = (head_ * kHeadDim + static_cast<std::int64_t>(c)) * 4;
      std::memcpy(at(out_.layout.value_scales, place), &codes_[c].scale, 4);
      std::memcpy(at(out_.layout.value_means, place), &codes_[c].mean, 4);
    }
  }

  static std::unique_ptr<Moments> sample_moments(const Rows& rows, bool centred) {
    testing::Rows sample;
    const auto tokens = static_cast<std::int64_t>(rows.size());
    for (int i = 0; i < sample_size(tokens); ++i) {
      sample.push_back(rows[static_cast<std::size_t>(sampled_token(i, tokens))]);
    }
    return testing::moments_of(sample, centred);
  }

  void find_axes(AxisShares& shares) {
    if (!wants_axes(request_.numerics, problem_.queries, problem_.keys)) return;
    const auto query = sample_moments(q_, false);
    const auto key = sample_moments(k_, true);
    principal_axes<kHeadDim>(SerialTeam{}, AxesTensor{*query, sample_size(problem_.queries), false},
                             AxesTensor{*key, sample_size(problem_.keys), true}, axes_columns(),
                             *axes_, shares);
  }

  [[nodiscard]] int axes_columns() const {
    return request_.numerics.max_extra_steps * kResidualChannelsPerStep;
  }

  /// Fills the plan of V if it is on axes, and rotates V.
  void plan_axes_of_values() {
    HeadStatistics head;
    head.value_extent = extent_of(v_);
    head.values_finite = head.value_extent.finite();
    for (std::size_t c = 0; c < kHeadDim; ++c) head.values[c].sum = channel_sum(v_, c);
    const NumericOptions& options = request_.numerics;
    if (!head.values_finite || !schedule::with_value_axes(request_)) return;
    const auto moments = sample_moments(v_, options.smooth_values);
    value_axes<kHeadDim>(SerialTeamOf<8>{},
                         AxesTensor{*moments, sample_size(problem_.keys), options.smooth_values},
                         *axes_, head.value_axes);
    plan_values(head, problem_.keys, options, plan_);
    if (plan_.values_on_axes == 0) return;
    const auto storage = std::make_unique<BasisStorage>();
    constexpr int kColumns = 8;
    orthogonal_basis(SerialTeamOf<8>{}, AxesView{axes_->axes, kColumns, kColumns}, 0, *storage);
    for (int c = 0; c < kHeadDim; ++c) {
      for (int j = 0; j < kHeadDim; ++j) {
        const float x =
            round_basis(storage->rows[j * (kColumns + kHeadDim) + kColumns + c], j < kColumns);
        value_basis_[static_cast<std::size_t>(c)][static_cast<std::size_t>(j)] = x;
        const std::uint16_t high = float_to_bfloat16(x);
        const std::uint16_t low = float_to_bfloat16(x - bfloat16_to_float(high));
        const std::size_t section = out_.layout.value_basis_at(head_);
        constexpr int kPitch = kHeadDim + kColumns;
        std::memcpy(at(section, (c * kPitch + j) * 2), &high, 2);
        if (j < kColumns) std::memcpy(at(section, (c * kPitch + kHeadDim + j) * 2), &low, 2);
      }
    }
    for (Row& row : v_) {
      for (std::size_t c = 0; c < kHeadDim; ++c) row[c] = row[c] - plan_.value_means[c];
      row = on_axes(row, value_basis_);
    }
  }

  void find_basis() {
    const auto storage = std::make_unique<BasisStorage>();
    const int columns = plan_.scores.extra_steps * kResidualChannelsPerStep;
    orthogonal_basis(SerialTeam{}, AxesView{axes_->axes, axes_columns(), columns}, 0, *storage);
    for (int c = 0; c < kHeadDim; ++c) {
      for (int j = 0; j < kHeadDim; ++j) {
        basis_[static_cast<std::size_t>(c)][static_cast<std::size_t>(j)] =
            round_basis(storage->rows[j * (columns + kHeadDim) + columns + c], j < columns);
      }
    }
  }

  /// row * matrix, channel by channel.
  [[nodiscard]] static Row on_axes(const Row& row, const std::array<Row, kHeadDim>& basis) {
    Row result{};
    for (std::size_t c = 0; c < kHeadDim; ++c) {
      for (std::size_t j = 0; j < kHeadDim; ++j) {
        result[j] = __builtin_fmaf(row[c], basis[c][j], result[j]);
      }
    }
    return result;
  }

  void queries() {
    for (std::int64_t s = 0; s < problem_.queries; ++s) {
      Row row = q_[static_cast<std::size_t>(s)];
      if (request_.with_log_sum_exp) {
        const float dot = row_dot([&](int c) { return row[static_cast<std::size_t>(c)]; },
                                  [&](int c) { return plan_.key_means[c]; });
        const float shift = with_canonical_nan(request_.softmax_scale * dot);
        std::memcpy(at(out_.layout.smoothing_shifts, (head_ * problem_.queries + s) * 4), &shift,
                    4);
      }
      if (plan_.scores.rotated != 0) rotate(row, kQueryRotationScale);
      if (plan_.scores.axes != 0) row = on_axes(row, basis_);
      const std::int64_t place = head_ * out_.layout.query_rows + s;
      score_row(row, plan_.scores.query_multiplier, out_.layout.query_codes,
                out_.layout.query_columns, place, problem_.batch_heads() * out_.layout.query_rows,
                true);
    }
  }

  void keys() {
    for (std::int64_t s = 0; s < problem_.keys; ++s) {
      Row row = k_[static_cast<std::size_t>(s)];
      for (std::size_t c = 0; c < kHeadDim; ++c) row[c] = row[c] - plan_.key_means[c];
      if (plan_.scores.rotated != 0) rotate(row, kKeyRotationScale);
      if (plan_.scores.axes != 0) row = on_axes(row, basis_);
      score_row(row, plan_.scores.key_multiplier, out_.layout.key_codes, out_.layout.key_columns,
                head_ * problem_.padded_keys() + s, problem_.batch_heads() * problem_.padded_keys(),
                false);
    }
    pad_keys(problem_.keys, problem_.key_blocks() * kKeyBlock);
  }

  /// Key rows [first, end).
  void pad_keys(std::int64_t first, std::int64_t end) {
    for (std::int64_t row = first; row < end; ++row) copy_key(first - 1, row);
  }

  void values() {
    for (std::int64_t s = 0; s < problem_.keys; ++s) {
      for (std::size_t c = 0; c < kHeadDim; ++c) {
        *value_byte(c, s) = e4m3_encode(coordinate(s, c));
      }
      if (plan_.values_on_axes != 0) {
        for (std::size_t i = 0; i < kValueColumns; ++i) {
          *value_byte(kHeadDim + i, s) = e4m3_encode(residual(s, i));
        }
      }
      for (auto row = static_cast<std::size_t>(out_.layout.ones_row());
           row < static_cast<std::size_t>(out_.layout.value_rows()); ++row) {
        *value_byte(row, s) = e4m3_encode(1.0f);
      }
    }
  }

  void repair() {
    std::vector<std::int64_t> order;
    std::vector<float> scores;
    for (std::int64_t s = 0; s < problem_.keys; ++s) {
      Row error{};
      for (std::size_t c = 0; c < kHeadDim; ++c) error[c] = residual(s, c) * codes_[c].scale;
      order.push_back(s);
      scores.push_back(row_squares(error));
    }
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return repairs_before(scores[static_cast<std::size_t>(a)], a,
                            scores[static_cast<std::size_t>(b)], b);
    });
    order.resize(static_cast<std::size_t>(problem_.repair_rows));
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::int64_t row = problem_.key_blocks() * kKeyBlock + static_cast<std::int64_t>(i);
      copy_key(order[i], row);
      for (std::size_t c = 0; c < kHeadDim; ++c) {
        *value_byte(c, row) = e4m3_encode(residual(order[i], c));
      }
    }
    pad_keys(problem_.key_blocks() * kKeyBlock + problem_.repair_rows, problem_.padded_keys());
  }

  void copy_key(std::int64_t from, std::int64_t to) {
    const std::int64_t first = head_ * problem_.padded_keys();
    std::memcpy(at(out_.layout.key_codes, (first + to) * kHeadDim),
                at(out_.layout.key_codes, (first + from) * kHeadDim), kHeadDim);
    for (int step = 0; step < request_.numerics.max_extra_steps; ++step) {
      const std::int64_t plane = (step * problem_.batch_heads()) * problem_.padded_keys() + first;
      std::memcpy(at(out_.layout.key_columns, (plane + to) * kColumnsPerStep),
                  at(out_.layout.key_columns, (plane + from) * kColumnsPerStep), kColumnsPerStep);
    }
  }

  void score_row(const Row& row, float multiplier, std::size_t codes, std::size_t columns,
                 std::int64_t place, std::int64_t plane, bool query) {
    for (std::size_t c = 0; c < kHeadDim; ++c) {
      *byte(codes, place * kHeadDim + static_cast<std::int64_t>(c)) =
          quantize(row[c], multiplier).code;
    }
    for (int i = 0; i < plan_.scores.extra_steps * kResidualChannelsPerStep; ++i) {
      const int position = i % kResidualChannelsPerStep;
      const Quantized x = quantize(row[plan_.residual_channels[i]], multiplier);
      const std::int64_t first = (i / kResidualChannelsPerStep * plane + place) * kColumnsPerStep;
      *byte(columns, first + (query ? query_low_column(position) : key_low_column(position))) =
          encode_low(x);
      *byte(columns, first + (query ? query_high_column(position) : key_high_column(position))) =
          encode_high(x);
    }
  }

  static void rotate(Row& row, float scale) {
    hadamard(row.data());
    for (float& x : row) x *= scale;
  }

  [[nodiscard]] float coordinate(std::int64_t s, std::size_t c) const {
    const float x = v_[static_cast<std::size_t>(s)][c];
    return plan_.values_on_axes != 0 ? x * codes_[c].multiplier : channel_coordinate(x, codes_[c]);
  }

  [[nodiscard]] float residual(std::int64_t s, std::size_t c) const {
    return value_residual(coordinate(s, c), e4m3_encode(coordinate(s, c)));
  }

  std::byte* at(std::size_t section, std::int64_t offset) {
    return out_.bytes.data() + section + offset;
  }

  std::uint8_t* byte(std::size_t section, std::int64_t offset) {
    return reinterpret_cast<std::uint8_t*>(at(section, offset));
  }

  std::uint8_t* value_byte(std::size_t row, std::int64_t key) {
    return byte(out_.layout.value_code_at(head_, static_cast<int>(row), key), 0);
  }

  const schedule::PrepareRequest& request_;
  const schedule::Problem& problem_;
  PreparedBytes& out_;
  std::int64_t head_;
  Rows q_;
  Rows k_;
  Rows v_;
  numerics::HeadPlan plan_;
  std::unique_ptr<AxesStorage> axes_ = std::make_unique<AxesStorage>();
  std::array<Row, kHeadDim> basis_{};
  std::array<Row, kHeadDim> value_basis_{};
  std::array<ChannelCode, kHeadDim> codes_{};
};

PreparedBytes empty_block(const schedule::PrepareRequest& request) {
  PreparedBytes result;
  result.layout = schedule::prepared_layout(request);
  result.bytes.resize(result.layout.bytes);
  result.plans.resize(static_cast<std::size_t>(request.problem.batch_heads()));
  return result;
}

}  // namespace

PreparedBytes reference_prepare(const schedule::PrepareRequest& request) {
  PreparedBytes result = empty_block(request);
  for (std::int64_t b = 0; b < request.problem.batch; ++b) {
    for (std::int64_t h = 0; h < request.problem.heads; ++h) Head(request, result, b, h).run();
  }
  return result;
}

PreparedBytes run_prepare(const schedule::PrepareRequest& request, int threads,
                          std::uint8_t filler) {
  constexpr std::size_t kGuard = schedule::kSectionAlignment;
  constexpr std::byte kGuardByte{0x5C};
  PreparedBytes result = empty_block(request);
  const std::size_t size = result.bytes.size();
  const auto release = [](std::byte* p) { ::operator delete (p, std::align_val_t{kGuard}); };
  const std::unique_ptr<std::byte, decltype(release)> memory(
      static_cast<std::byte*>(::operator new (size + 2 * kGuard, std::align_val_t{kGuard})),
      release);
  std::byte* block = memory.get() + kGuard;
  std::fill_n(memory.get(), size + 2 * kGuard, kGuardByte);
  std::fill_n(block, size, std::byte{filler});
  cpu::ThreadPool pool(threads);
  result.plans = summaries(cpu::prepare(request, block, pool));
  const auto intact = [&](const std::byte* guard) {
    return std::all_of(guard, guard + kGuard, [&](std::byte b) { return b == kGuardByte; });
  };
  EXPECT_TRUE(intact(memory.get())) << "wrote before the block";
  EXPECT_TRUE(intact(block + size)) << "wrote behind the block";
  std::copy_n(block, size, result.bytes.begin());
  return result;
}

std::vector<Section> sections(const schedule::PrepareRequest& request) {
  const schedule::Problem& p = request.problem;
  const auto layout = schedule::prepared_layout(request);
  const auto bh = static_cast<std::size_t>(p.batch_heads());
  const std::size_t queries = bh * static_cast<std::size_t>(layout.query_rows);
  const std::size_t keys = bh * static_cast<std::size_t>(p.padded_keys());
  const std::size_t columns = static_cast<std::size_t>(request.numerics.max_extra_steps) *
                              static_cast<std::size_t>(kColumnsPerStep);
  std::vector<Section> all;
  const auto add = [&](const char* name, std::size_t begin, std::size_t bytes) {
    all.push_back({name, begin, begin + bytes});
  };
  add("query_codes", layout.query_codes, queries * kHeadDim);
  add("key_codes", layout.key_codes, keys * kHeadDim);
  add("value_codes", layout.value_codes,
      bh * static_cast<std::size_t>(p.padded_key_blocks()) * layout.value_block_bytes());
  add("query_columns", layout.query_columns, queries * columns);
  add("key_columns", layout.key_columns, keys * columns);
  add("head_rules", layout.head_rules, bh * sizeof(numerics::HeadRule));
  add("value_scales", layout.value_scales, bh * kHeadDim * sizeof(float));
  add("value_means", layout.value_means, bh * kHeadDim * sizeof(float));
  if (schedule::with_value_axes(request)) {
    add("value_bases", layout.value_bases, bh * layout.value_basis_bytes());
  }
  if (request.with_log_sum_exp) {
    add("smoothing_shifts", layout.smoothing_shifts,
        bh * static_cast<std::size_t>(p.queries) * sizeof(float));
  }
  return all;
}

std::string first_difference(const schedule::PrepareRequest& request, const PreparedBytes& a,
                             const PreparedBytes& b) {
  for (const Section& section : sections(request)) {
    for (std::size_t i = section.begin; i < section.end; ++i) {
      if (a.bytes[i] == b.bytes[i]) continue;
      return section.name + " byte " + std::to_string(i - section.begin) + ": " +
             std::to_string(std::to_integer<int>(a.bytes[i])) + " and " +
             std::to_string(std::to_integer<int>(b.bytes[i]));
    }
  }
  return {};
}

}  // namespace openvc::test
