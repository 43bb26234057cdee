// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cpu/prepare.hpp"
#include "cpu/thread_pool.hpp"
#include "cuda/prepare/prepare.hpp"
#include "cuda/sm90/launch.hpp"
#include "gpu/device_buffer.hpp"
#include "gpu/device_tensor.hpp"
#include "numerics/bits.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/head_plan.hpp"
#include "numerics/qk_quantize.hpp"
#include "numerics/repair.hpp"
#include "schedule/prepared_layout.hpp"
#include "unit/cpu/test_tensor.hpp"

// One preparation on both backends, and the comparison of what they wrote.
namespace openvc::test {

/// Where the elements of a tensor lie.
enum class Layout { contiguous, fused_qkv, head_major, reversed, odd_pitch, one_head, one_token };
inline constexpr Layout kLayouts[] = {Layout::contiguous, Layout::fused_qkv, Layout::head_major,
                                      Layout::reversed,   Layout::odd_pitch, Layout::one_head,
                                      Layout::one_token};

/// What the elements are.
enum class Family {
  normal,
  wide,
  outliers,
  offset,
  zeros,
  huge,
  tiny,
  constant,
  one_bad_head,
  some_on_axes,  // by head, where axes are wanted: of all, of V, of Q and K, of nothing
};
inline constexpr Family kFamilies[] = {Family::normal, Family::wide,     Family::outliers,
                                       Family::offset, Family::zeros,    Family::huge,
                                       Family::tiny,   Family::constant, Family::one_bad_head};

struct PrepareCase {
  ElementType type = ElementType::bfloat16;
  std::int64_t batch = 1;
  std::int64_t heads = 2;
  std::int64_t queries = 300;
  std::int64_t keys = 300;
  int head_dim = numerics::kHeadDim;
  std::int64_t heads_per_group = 1;
  Layout layout = Layout::contiguous;
  Family family = Family::normal;
  std::size_t shift = 0;  // bytes from 256-byte alignment
  NumericOptions numerics{};
  bool with_log_sum_exp = false;
  double repair_budget = 0.0;
  std::uint64_t seed = 1;

  [[nodiscard]] std::string describe() const {
    std::string text = std::string(element_name(type)) + " B" + std::to_string(batch) + " H" +
                       std::to_string(heads) + " Sq" + std::to_string(queries) + " Skv" +
                       std::to_string(keys);
    text += " D" + std::to_string(head_dim) + " group " + std::to_string(heads_per_group);
    text += " layout " + std::to_string(static_cast<int>(layout));
    text += " family " + std::to_string(static_cast<int>(family));
    text += " shift " + std::to_string(shift) + " smooth " + std::to_string(numerics.smooth_keys);
    text += " rotation " + std::to_string(static_cast<int>(numerics.rotation));
    text += " steps " + std::to_string(numerics.max_extra_steps) + " target " +
            std::to_string(numerics.score_error_target);
    text += " centre " + std::to_string(numerics.smooth_values) + " per_head " +
            std::to_string(numerics.value_scale == ValueScale::per_head);
    text += " lse " + std::to_string(with_log_sum_exp) + " repair " + std::to_string(repair_budget);
    text += " seed " + std::to_string(seed);
    return text;
  }
};

inline Shape make_strides(Layout layout, const Shape& shape) {
  const std::int64_t s = shape[kSequence];
  const std::int64_t h = shape[kHead];
  const std::int64_t d = shape[kChannel];
  constexpr std::int64_t kNeverUsed = 12345677;
  Shape strides = contiguous_strides(shape);
  switch (layout) {
    case Layout::contiguous:
      break;
    case Layout::fused_qkv:
      strides = {s * 3 * h * d, 3 * h * d, d, 1};
      break;
    case Layout::head_major:
      strides = {h * s * d, d, s * d, 1};
      break;
    case Layout::reversed:
      strides = {s * h * d, -h * d, d, 1};
      break;
    case Layout::odd_pitch:
      strides = {s * (h * (d + 3) + 5), h * (d + 3) + 5, d + 3, 1};
      break;
    case Layout::one_head:
      strides = {s * d, d, 0, 1};
      break;
    case Layout::one_token:
      strides = {h * d, 0, d, 1};
      break;
  }
  for (std::size_t axis = 0; axis < 3; ++axis) {
    if (shape[axis] == 1) strides[axis] = kNeverUsed;
  }
  return strides;
}

/// The family of a tensor of a head. Extreme tensors have no axes.
inline Family family_of(Family family, std::int64_t head, bool is_value) {
  if (family != Family::some_on_axes) return family;
  return (is_value ? head / 2 : head) % 2 == 0 ? Family::outliers : Family::huge;
}

inline float family_value(Family family, Random& random, std::int64_t head, std::int64_t token,
                          std::int64_t channel) {
  const float x = random.normal();
  constexpr float kHuge = 3e38f;
  switch (family) {
    case Family::normal:
      return x;
    case Family::wide:
      return 1.75f * x;
    case Family::outliers:
      return channel % 17 == 3 ? 12.0f * x : (token % 29 == 7 ? 4.0f * x : 0.5f * x);
    case Family::offset:
      return x + 0.25f * static_cast<float>(channel % 9) - 1.0f;
    case Family::zeros:
      return 0.0f;
    case Family::huge:
      return x > 0.0f ? kHuge : -kHuge;
    case Family::tiny:
      return 1e-40f * x;
    case Family::constant:
      return 0.7f;
    case Family::one_bad_head:
      if (head != 0 || channel != 5) return x;
      if (token == 0) return std::numeric_limits<float>::infinity();
      return token == 3 ? std::numeric_limits<float>::quiet_NaN() : x;
    case Family::some_on_axes:
      break;  // family_of() has replaced it
  }
  return x;
}

/// The inputs of a case on both sides.
struct CaseTensors {
  TestTensor q, k, v;
  DeviceTensor device_q, device_k, device_v;

  explicit CaseTensors(const PrepareCase& c)
      : q(make(c, c.queries, c.heads, 1)),
        k(make(c, c.keys, c.heads / c.heads_per_group, 2)),
        v(make(c, c.keys, c.heads / c.heads_per_group, 3)),
        device_q(q, c.shift),
        device_k(k, c.shift),
        device_v(v, c.shift) {}

  /// Other elements in the same places.
  void refill(const PrepareCase& c) {
    q = make(c, c.queries, c.heads, 1);
    k = make(c, c.keys, c.heads / c.heads_per_group, 2);
    v = make(c, c.keys, c.heads / c.heads_per_group, 3);
    device_q.upload(q);
    device_k.upload(k);
    device_v.upload(v);
  }

 private:
  static constexpr std::uint64_t kValueTensor = 3;

  static TestTensor make(const PrepareCase& c, std::int64_t tokens, std::int64_t heads,
                         std::uint64_t which) {
    const Shape shape{c.batch, tokens, heads, c.head_dim};
    TestTensor tensor(c.type, shape, make_strides(c.layout, shape));
    Random random(10 * c.seed + which);
    return tensor.fill([&](auto, std::int64_t s, std::int64_t h, std::int64_t channel) {
      return family_value(family_of(c.family, h, which == kValueTensor), random, h, s, channel);
    });
  }
};

inline schedule::PrepareRequest make_request(const PrepareCase& c, const TensorView& q,
                                             const TensorView& k, const TensorView& v) {
  schedule::PrepareRequest request;
  request.format = cuda::sm90::kPackedFormat;
  request.q = q;
  request.k = k;
  request.v = v;
  request.problem.batch = c.batch;
  request.problem.heads = c.heads;
  request.problem.queries = c.queries;
  request.problem.keys = c.keys;
  request.problem.head_dim = c.head_dim;
  request.problem.heads_per_group = c.heads_per_group;
  request.problem.repair_rows = numerics::repair_row_count(c.repair_budget, c.keys);
  request.softmax_scale = 0.08838834764831845f;
  request.numerics = c.numerics;
  request.with_log_sum_exp = c.with_log_sum_exp;
  return request;
}

inline schedule::PrepareRequest device_request(const PrepareCase& c, const CaseTensors& tensors) {
  return make_request(c, tensors.device_q.view(), tensors.device_k.view(), tensors.device_v.view());
}

struct Prepared {
  schedule::PreparedLayout layout;
  bool exact_products = false;  // on axes: sums are in the order of the CPU
  int steps = 0;                // planes of residual columns
  std::size_t query_columns_end = 0;
  std::size_t key_columns_end = 0;
  std::vector<std::byte> block;
  std::vector<numerics::HeadPlan> plans;
};

inline Prepared describe_prepared(const schedule::PrepareRequest& request) {
  const schedule::Problem& p = request.problem;
  Prepared result;
  result.layout = schedule::prepared_layout(request);
  result.exact_products = request.q.type == ElementType::float32;
  result.steps = request.numerics.max_extra_steps;
  const auto bytes = [&](std::int64_t rows) {
    return static_cast<std::size_t>(result.steps * p.batch_heads() * rows *
                                    numerics::kColumnsPerStep);
  };
  result.query_columns_end = result.layout.query_columns + bytes(result.layout.query_rows);
  result.key_columns_end = result.layout.key_columns + bytes(p.padded_keys());
  result.plans.resize(static_cast<std::size_t>(p.batch_heads()));
  return result;
}

inline constexpr std::uint8_t kFiller = 0xA5;

inline Prepared prepare_on_host(const PrepareCase& c, const CaseTensors& tensors) {
  const auto request = make_request(c, tensors.q.view(), tensors.k.view(), tensors.v.view());
  Prepared result = describe_prepared(request);
  constexpr std::size_t kAlignment = schedule::kSectionAlignment;
  std::vector<std::byte> storage(result.layout.bytes + kAlignment, std::byte{kFiller});
  const auto address = reinterpret_cast<std::uintptr_t>(storage.data());
  std::byte* block = storage.data() + (kAlignment - address % kAlignment) % kAlignment;
  cpu::ThreadPool pool(0);
  result.plans = cpu::prepare(request, block, pool);
  result.block.assign(block, block + result.layout.bytes);
  return result;
}

/// The device's block and workspace of a case, reusable for several launches.
class DevicePreparation {
 public:
  explicit DevicePreparation(const schedule::PrepareRequest& request)
      : request_(request),
        block_(describe_prepared(request).layout.bytes, kFiller),
        workspace_(cuda::prepare::workspace_bytes(request), 0xFF) {}

  void launch(cudaStream_t stream) {
    cuda::prepare::launch(request_, block_.data(), workspace_.data(), stream);
  }

  [[nodiscard]] Prepared result(cudaStream_t stream) const {
    Prepared result = describe_prepared(request_);
    result.plans = cuda::prepare::read_plans(request_, workspace_.data(), stream);
    result.block = block_.download();
    return result;
  }

  [[nodiscard]] bool guards_untouched() const {
    return block_.guards_untouched() && workspace_.guards_untouched();
  }

 private:
  schedule::PrepareRequest request_;
  DeviceBuffer block_;
  DeviceBuffer workspace_;
};

/// Whether a byte of the block has a meaning: residual columns beyond the steps of a head have
/// none.
inline bool is_defined(const Prepared& prepared, std::size_t offset) {
  const schedule::PreparedLayout& l = prepared.layout;
  if (offset >= l.value_bases && offset < l.smoothing_shifts) {
    const std::size_t head = (offset - l.value_bases) / l.value_basis_bytes();
    return head < prepared.plans.size() && prepared.plans[head].values_on_axes != 0;
  }
  if (offset < l.query_columns || offset >= l.head_rules) return true;
  const bool is_query = offset < l.key_columns;
  const std::size_t section = is_query ? l.query_columns : l.key_columns;
  const std::size_t end = is_query ? prepared.query_columns_end : prepared.key_columns_end;
  const std::size_t planes = prepared.plans.size() * static_cast<std::size_t>(prepared.steps);
  if (planes == 0 || offset >= end) return true;
  const std::size_t plane = (offset - section) / ((end - section) / planes);
  return static_cast<int>(plane / prepared.plans.size()) <
         prepared.plans[plane % prepared.plans.size()].scores.extra_steps;
}

/// The head whose codes or residual columns of Q and K hold a byte; -1 for other sections.
inline std::int64_t score_head_of(const Prepared& prepared, std::size_t offset) {
  const schedule::PreparedLayout& l = prepared.layout;
  const std::size_t heads = prepared.plans.size();
  const auto of_codes = [&](std::size_t section, std::int64_t rows) {
    const std::size_t head =
        (offset - section) / (static_cast<std::size_t>(rows) * numerics::kHeadDim);
    return head < heads ? static_cast<std::int64_t>(head) : -1;
  };
  const auto of_columns = [&](std::size_t section, std::size_t end) {
    const std::size_t planes = heads * static_cast<std::size_t>(prepared.steps);
    if (planes == 0 || offset >= end) return std::int64_t{-1};
    return static_cast<std::int64_t>((offset - section) / ((end - section) / planes) % heads);
  };
  if (offset < l.key_codes) return of_codes(l.query_codes, l.query_rows);
  if (offset < l.value_codes) return of_codes(l.key_codes, l.key_rows);
  if (offset < l.query_columns || offset >= l.head_rules) return -1;
  if (offset < l.key_columns) return of_columns(l.query_columns, prepared.query_columns_end);
  return of_columns(l.key_columns, prepared.key_columns_end);
}

/// The same of codes and residual columns of V.
inline std::int64_t value_head_of(const Prepared& prepared, std::size_t offset) {
  const schedule::PreparedLayout& l = prepared.layout;
  if (offset < l.value_codes || offset >= l.query_columns) return -1;
  const auto blocks = static_cast<std::size_t>(l.key_rows / numerics::kKeyBlock);
  const std::size_t head = (offset - l.value_codes) / (blocks * l.value_block_bytes());
  return head < prepared.plans.size() ? static_cast<std::int64_t>(head) : -1;
}

/// Whether V of a head is.
inline bool has_approximate_values(const Prepared& prepared, std::int64_t head) {
  return head >= 0 && !prepared.exact_products &&
         prepared.plans[static_cast<std::size_t>(head)].values_on_axes != 0;
}

/// Whether products of a head are sums in another order than the CPU's.
inline bool is_approximate(const Prepared& prepared, std::int64_t head) {
  return head >= 0 && !prepared.exact_products &&
         prepared.plans[static_cast<std::size_t>(head)].scores.axes != 0;
}

/// Of a head on axes: codes may differ by one where a product lies on a tie, the residual then
/// makes up for it, and both are rare.
inline std::string axes_difference(const Prepared& expected, const Prepared& actual,
                                   std::int64_t head, bool is_query, double max_flips) {
  const schedule::PreparedLayout& l = expected.layout;
  const int steps = expected.plans[static_cast<std::size_t>(head)].scores.extra_steps;
  const std::int64_t rows = is_query ? l.query_rows : l.key_rows;
  const auto value = [](const Prepared& prepared, std::size_t offset) {
    return numerics::e4m3_decode(std::to_integer<std::uint8_t>(prepared.block[offset]));
  };
  std::int64_t flips = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::size_t codes = is_query ? l.query_at(head, row) : l.key_at(head, row);
    for (int j = 0; j < numerics::kHeadDim; ++j) {
      const std::size_t place = codes + static_cast<std::size_t>(j);
      float e = value(expected, place);
      float a = value(actual, place);
      const float size = std::max(std::fabs(e), std::fabs(a));
      if (expected.block[place] != actual.block[place]) ++flips;
      float limit = std::max(0x1p-3f * size, numerics::kE4m3MinSubnormal);
      if (j < steps * numerics::kResidualChannelsPerStep) {
        const int position = j % numerics::kResidualChannelsPerStep;
        const int step = j / numerics::kResidualChannelsPerStep;
        const std::size_t columns =
            is_query ? l.query_columns_at(step, head, row) : l.key_columns_at(step, head, row);
        const auto low =
            columns + static_cast<std::size_t>(is_query ? numerics::query_low_column(position)
                                                        : numerics::key_low_column(position));
        constexpr float kUnit = numerics::exp2_int(-numerics::kResidualBalance);
        e += kUnit * value(expected, low);
        a += kUnit * value(actual, low);
        limit = std::max(0x1p-7f * size, numerics::kE4m3MinSubnormal);
      }
      if (std::fabs(e - a) <= limit) continue;
      return std::string(is_query ? "query" : "key") + " codes of head " + std::to_string(head) +
             ", row " + std::to_string(row) + ", column " + std::to_string(j) + ": " +
             std::to_string(e) + " expected, " + std::to_string(a) + " found; ";
    }
  }
  const double share = static_cast<double>(flips) / static_cast<double>(rows * numerics::kHeadDim);
  if (share <= max_flips || flips <= 2) return {};
  return std::to_string(flips) + " codes of head " + std::to_string(head) + " differ; ";
}

/// The same of V.
inline std::string value_axes_difference(const Prepared& expected, const Prepared& actual,
                                         std::int64_t head) {
  const schedule::PreparedLayout& l = expected.layout;
  const auto value = [&](const Prepared& prepared, int row, std::int64_t key) {
    return numerics::e4m3_decode(
        std::to_integer<std::uint8_t>(prepared.block[l.value_code_at(head, row, key)]));
  };
  std::int64_t flips = 0;
  for (std::int64_t key = 0; key < l.key_rows; ++key) {
    for (int axis = 0; axis < numerics::kHeadDim; ++axis) {
      float e = value(expected, axis, key);
      float a = value(actual, axis, key);
      const float size = std::max(std::fabs(e), std::fabs(a));
      if (e != a) ++flips;
      float limit = std::max(0x1p-3f * size, numerics::kE4m3MinSubnormal);
      if (axis < numerics::kValueColumns) {
        e += value(expected, numerics::kHeadDim + axis, key);
        a += value(actual, numerics::kHeadDim + axis, key);
        limit = std::max(0x1p-7f * size, numerics::kE4m3MinSubnormal);
      }
      if (std::fabs(e - a) <= limit) continue;
      return "values of head " + std::to_string(head) + ", key " + std::to_string(key) + ", axis " +
             std::to_string(axis) + ": " + std::to_string(e) + " expected, " + std::to_string(a) +
             " found; ";
    }
    const int ones = l.ones_row();
    if (value(expected, ones, key) != value(actual, ones, key)) return "row of ones; ";
  }
  constexpr double kMaxValueFlips = 5e-4;
  const auto elements = static_cast<double>(l.key_rows * numerics::kHeadDim);
  if (static_cast<double>(flips) <= kMaxValueFlips * elements || flips <= 2) return {};
  return std::to_string(flips) + " codes of V of head " + std::to_string(head) + " differ; ";
}

/// Share of the codes of Q and K on axes that a GPU may round to the other side of a tie. Rounding
/// of the sums explains 3e-5. Where a token is an outlier in a channel, small products are
/// differences of large ones: 1.5 % of the codes of 43 such tokens were seen to differ.
inline constexpr double kMaxFlips = 0.02;

/// Where two preparations differ first; empty if they are equal, heads on axes but for ties.
inline std::string first_difference(const Prepared& expected, const Prepared& actual,
                                    double max_flips = kMaxFlips) {
  const schedule::PreparedLayout& l = expected.layout;
  struct Section {
    const char* name;
    std::size_t begin;
    std::size_t end;
  };
  const Section sections[] = {{"query_codes", l.query_codes, l.key_codes},
                              {"key_codes", l.key_codes, l.value_codes},
                              {"value_codes", l.value_codes, l.query_columns},
                              {"query_columns", l.query_columns, l.key_columns},
                              {"key_columns", l.key_columns, l.head_rules},
                              {"head_rules", l.head_rules, l.value_scales},
                              {"value_scales", l.value_scales, l.value_means},
                              {"value_means", l.value_means, l.value_bases},
                              {"value_bases", l.value_bases, l.smoothing_shifts},
                              {"smoothing_shifts", l.smoothing_shifts, l.bytes}};
  std::string report;
  for (const Section& section : sections) {
    std::size_t differences = 0;
    std::size_t first = 0;
    for (std::size_t i = section.begin; i < section.end; ++i) {
      if (expected.block[i] == actual.block[i] || !is_defined(expected, i)) continue;
      if (is_approximate(expected, score_head_of(expected, i))) continue;
      if (has_approximate_values(expected, value_head_of(expected, i))) continue;
      if (differences++ == 0) first = i;
    }
    if (differences == 0) continue;
    report += std::string(section.name) + ": " + std::to_string(differences) + " of " +
              std::to_string(section.end - section.begin) + " bytes differ, first at +" +
              std::to_string(first - section.begin) + ": " +
              std::to_string(std::to_integer<int>(expected.block[first])) + " expected, " +
              std::to_string(std::to_integer<int>(actual.block[first])) + " found; ";
  }
  for (std::size_t head = 0; head < expected.plans.size(); ++head) {
    const auto bh = static_cast<std::int64_t>(head);
    if (is_approximate(expected, bh) && actual.plans[head].scores.axes != 0) {
      report += axes_difference(expected, actual, bh, true, max_flips);
      report += axes_difference(expected, actual, bh, false, max_flips);
    }
    if (has_approximate_values(expected, bh) && actual.plans[head].values_on_axes != 0) {
      report += value_axes_difference(expected, actual, bh);
    }
    // NaN has many bits; the codes that follow from it are compared above.
    const auto words = [](const numerics::HeadPlan& plan) {
      std::array<float, sizeof(plan) / sizeof(float)> values{};
      std::memcpy(values.data(), &plan, sizeof(plan));
      for (float& x : values) x = numerics::with_canonical_nan(x);
      return values;
    };
    const auto e = words(expected.plans[head]);
    const auto a = words(actual.plans[head]);
    if (std::memcmp(e.data(), a.data(), sizeof(e)) == 0) continue;
    const auto text = [](const numerics::HeadPlan& plan) {
      return std::to_string(plan.scores.extra_steps) + "/" + std::to_string(plan.scores.rotated) +
             "/" + std::to_string(plan.scores.wide) + "/" +
             std::to_string(plan.scores.score_exponent) + "/" +
             std::to_string(plan.score_rounding.error) + "/" +
             std::to_string(plan.value_rounding.error);
    };
    std::size_t word = 0;
    while (numerics::float_bits(e[word]) == numerics::float_bits(a[word])) ++word;
    report += "plan of head " + std::to_string(head) + ", word " + std::to_string(word) + ": " +
              text(expected.plans[head]) + " expected, " + text(actual.plans[head]) + " found; ";
  }
  return report;
}

}  // namespace openvc::test
