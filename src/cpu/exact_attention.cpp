// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/exact_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "cpu/aligned_buffer.hpp"
#include "cpu/load_row.hpp"
#include "numerics/bits.hpp"
#include "numerics/contract.hpp"

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/exact_attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "cpu/matrix_tile-inl.hpp"

#ifndef OPENVC_CPU_EXACT_ATTENTION_SHARED_
#define OPENVC_CPU_EXACT_ATTENTION_SHARED_
namespace openvc::cpu {
namespace {

/// Rows that a task computes together: keys are converted once for all of them. A lane is a row.
constexpr int kExactRows = 64;
/// Keys between two visits of the accumulators.
constexpr int kExactKeys = 128;
/// Channels are padded with zeros to a multiple of this.
constexpr int kExactTileChannels = 4;

/// Some rows of one head.
struct ExactTask {
  const TensorView& q;
  const TensorView& k;
  const TensorView& v;
  std::int64_t batch;
  std::int64_t head;
  std::int64_t key_head;
  const std::int64_t* rows;  // [count]
  int count;                 // <= kExactRows
  Mask mask;
  double softmax_scale;
  double* out;  // channels of the first row
  std::int64_t out_stride;
  double* log_sum_exp;  // null or [count]

  [[nodiscard]] std::int64_t keys() const { return k.shape[kSequence]; }
  [[nodiscard]] std::int64_t channels() const { return q.shape[kChannel]; }
  [[nodiscard]] std::int64_t visible_keys(int row) const {
    if (mask == Mask::none) return keys();
    const std::int64_t visible = rows[row] + 1 + keys() - q.shape[kSequence];
    return std::clamp<std::int64_t>(visible, 0, keys());
  }
};

/// Working memory of one thread.
struct ExactWorkspace {
  explicit ExactWorkspace(std::int64_t channels)
      : padded(static_cast<int>(numerics::round_up(channels, kExactTileChannels))),
        loaded(static_cast<std::size_t>(padded)),
        queries(static_cast<std::size_t>(padded * kExactRows)),
        keys(static_cast<std::size_t>(padded * kExactKeys)),
        values(static_cast<std::size_t>(padded * kExactKeys)),
        scores(static_cast<std::size_t>(kExactKeys * kExactRows)),
        accumulators(static_cast<std::size_t>(padded * kExactRows)) {}

  int padded;
  AlignedBuffer<float> loaded;         // one row
  AlignedBuffer<double> queries;       // (padded, kExactRows), scaled
  AlignedBuffer<double> keys;          // (kExactKeys, padded)
  AlignedBuffer<double> values;        // (kExactKeys, padded)
  AlignedBuffer<double> scores;        // (kExactKeys, kExactRows), then probabilities
  AlignedBuffer<double> accumulators;  // (padded, kExactRows)
  alignas(kVectorAlignment) double visible[kExactRows];
  alignas(kVectorAlignment) double maximum[kExactRows];
  alignas(kVectorAlignment) double sum[kExactRows];
};

}  // namespace
}  // namespace openvc::cpu
#endif  // OPENVC_CPU_EXACT_ATTENTION_SHARED_

HWY_BEFORE_NAMESPACE();
namespace openvc::cpu {
namespace HWY_NAMESPACE {
namespace {

using DoubleTag = hn::ScalableTag<double>;
using DoubleDot = FloatDot<DoubleTag>;
using DoubleVector = hn::Vec<DoubleTag>;
constexpr int kExactGroup = kTileVectors * DoubleDot::kLanes;
static_assert(kExactRows % kExactGroup == 0 && kExactKeys % kTileRows == 0 &&
              kExactTileChannels % kTileRows == 0);

class ExactHead {
 public:
  ExactHead(const ExactTask& task, ExactWorkspace& space) : task_(task), space_(space) {}

  void run() {
    load_queries();
    for_each_block([this](std::int64_t first, int count) HWY_ATTR {
      load_rows(task_.k, first, count, space_.keys.data());
      for (int group = 0; group < task_.count; group += kExactGroup) raise_maxima(first, group);
    });
    for_each_block([this](std::int64_t first, int count) HWY_ATTR {
      load_rows(task_.k, first, count, space_.keys.data());
      load_rows(task_.v, first, count, space_.values.data());
      for (int group = 0; group < task_.count; group += kExactGroup) accumulate(first, group);
    });
    store();
  }

 private:
  template <class Visit>
  void for_each_block(const Visit& visit) const {
    for (std::int64_t first = 0; first < last_visible_; first += kExactKeys) {
      check_interrupt();
      visit(first, static_cast<int>(std::min<std::int64_t>(kExactKeys, task_.keys() - first)));
    }
  }

  void load_queries() {
    std::fill_n(space_.queries.data(), space_.padded * kExactRows, 0.0);
    std::fill_n(space_.accumulators.data(), space_.padded * kExactRows, 0.0);
    for (int row = 0; row < kExactRows; ++row) {
      space_.maximum[row] = -std::numeric_limits<double>::infinity();
      space_.sum[row] = 0.0;
      space_.visible[row] = 0.0;
      if (row >= task_.count) continue;
      last_visible_ = std::max(last_visible_, task_.visible_keys(row));
      space_.visible[row] = static_cast<double>(task_.visible_keys(row));
      load_row(task_.q, task_.batch, task_.rows[row], task_.head, space_.loaded.data());
      for (std::int64_t c = 0; c < task_.channels(); ++c) {
        space_.queries.data()[c * kExactRows + row] =
            task_.softmax_scale * static_cast<double>(space_.loaded.data()[c]);
      }
    }
  }

  /// Rows beyond `count` and channels beyond those of the tensor become zero.
  void load_rows(const TensorView& tensor, std::int64_t first, int count, double* out) {
    const auto channels = static_cast<std::size_t>(task_.channels());
    for (int row = 0; row < kExactKeys; ++row, out += space_.padded) {
      if (row < count) {
        load_row(tensor, task_.batch, first + row, task_.key_head, space_.loaded.data());
        std::copy_n(space_.loaded.data(), channels, out);
        std::fill(out + channels, out + space_.padded, 0.0);
      } else {
        std::fill_n(out, space_.padded, 0.0);
      }
    }
  }

  /// Scores of kTileRows keys from `key` of the block on.
  void score(int key, int group, DoubleVector (&sums)[kTileRows][kTileVectors]) const {
    for (auto& row : sums) {
      for (auto& sum : row) sum = hn::Zero(DoubleTag());
    }
    const auto padded = static_cast<std::size_t>(space_.padded);
    multiply_tile<DoubleDot>(space_.keys.data() + static_cast<std::size_t>(key) * padded,
                             space_.queries.data() + group, padded,
                             {.a_row = padded, .a_step = 1, .b_step = kExactRows}, sums);
  }

  /// Lanes that see key `key` of the sequence.
  [[nodiscard]] hn::Mask<DoubleTag> sees(std::int64_t key, int lane) const {
    const DoubleTag d;
    return hn::Lt(hn::Set(d, static_cast<double>(key)), hn::Load(d, space_.visible + lane));
  }

  void raise_maxima(std::int64_t first, int group) {
    const DoubleTag d;
    DoubleVector sums[kTileRows][kTileVectors];
    for (int key = 0; key < kExactKeys; key += kTileRows) {
      score(key, group, sums);
      for (int v = 0; v < kTileVectors; ++v) {
        const int lane = group + v * DoubleDot::kLanes;
        auto maximum = hn::Load(d, space_.maximum + lane);
        for (int r = 0; r < kTileRows; ++r) {
          const auto above = hn::And(sees(first + key + r, lane), hn::Gt(sums[r][v], maximum));
          maximum = hn::IfThenElse(above, sums[r][v], maximum);
        }
        hn::Store(maximum, d, space_.maximum + lane);
      }
    }
  }

  void accumulate(std::int64_t first, int group) {
    const DoubleTag d;
    DoubleVector sums[kTileRows][kTileVectors];
    for (int key = 0; key < kExactKeys; key += kTileRows) {
      score(key, group, sums);
      for (int v = 0; v < kTileVectors; ++v) {
        const int lane = group + v * DoubleDot::kLanes;
        const auto maximum = hn::Load(d, space_.maximum + lane);
        auto sum = hn::Load(d, space_.sum + lane);
        for (int r = 0; r < kTileRows; ++r) {
          const auto x = hn::Sub(sums[r][v], maximum);
          // Exp() maps NaN to 0; a NaN must stay one.
          const auto weight = hn::IfThenElse(hn::Eq(x, x), hn::Exp(d, x), x);
          const auto seen = hn::IfThenElseZero(sees(first + key + r, lane), weight);
          sum = hn::Add(sum, seen);
          hn::Store(seen, d, space_.scores.data() + (key + r) * kExactRows + lane);
        }
        hn::Store(sum, d, space_.sum + lane);
      }
    }
    add_values(group);
  }

  void add_values(int group) {
    const DoubleTag d;
    const auto padded = static_cast<std::size_t>(space_.padded);
    for (int channel = 0; channel < space_.padded; channel += kTileRows) {
      double* out = space_.accumulators.data() + channel * kExactRows + group;
      DoubleVector sums[kTileRows][kTileVectors];
      for (int r = 0; r < kTileRows; ++r) {
        for (int v = 0; v < kTileVectors; ++v) {
          sums[r][v] = hn::Load(d, out + r * kExactRows + v * DoubleDot::kLanes);
        }
      }
      multiply_tile<DoubleDot>(space_.values.data() + channel, space_.scores.data() + group,
                               kExactKeys, {.a_row = 1, .a_step = padded, .b_step = kExactRows},
                               sums);
      for (int r = 0; r < kTileRows; ++r) {
        for (int v = 0; v < kTileVectors; ++v) {
          hn::Store(sums[r][v], d, out + r * kExactRows + v * DoubleDot::kLanes);
        }
      }
    }
  }

  void store() const {
    for (int row = 0; row < task_.count; ++row) {
      const double sum = space_.sum[row];
      for (std::int64_t c = 0; c < task_.channels(); ++c) {
        const double weighted = space_.accumulators.data()[c * kExactRows + row];
        task_.out[row * task_.out_stride + c] = space_.visible[row] > 0.0 ? weighted / sum : 0.0;
      }
      if (task_.log_sum_exp != nullptr) {
        task_.log_sum_exp[row] = space_.visible[row] > 0.0
                                     ? space_.maximum[row] + std::log(sum)
                                     : -std::numeric_limits<double>::infinity();
      }
    }
  }

  const ExactTask& task_;
  ExactWorkspace& space_;
  std::int64_t last_visible_ = 0;
};

void exact_rows(const ExactTask& task, ExactWorkspace& space) { ExactHead(task, space).run(); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace openvc::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace openvc::cpu {

HWY_EXPORT(exact_rows);

void exact_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                     std::span<const std::int64_t> rows, double* out, double* log_sum_exp,
                     Mask mask, double softmax_scale, ThreadPool& pool) {
  const auto count = static_cast<std::int64_t>(rows.size());
  const std::int64_t channels = q.shape[kChannel];
  const std::int64_t heads = q.shape[kHead];
  const std::int64_t heads_per_group = heads / k.shape[kHead];
  const std::int64_t parts = numerics::ceil_div(count, kExactRows);
  std::vector<std::unique_ptr<ExactWorkspace>> spaces(static_cast<std::size_t>(pool.size()));
  pool.parallel_for(q.shape[kBatch] * heads * parts, [&](std::int64_t index, int worker) {
    auto& space = spaces[static_cast<std::size_t>(worker)];
    if (!space) space = std::make_unique<ExactWorkspace>(channels);
    const std::int64_t bh = index / parts;
    const std::int64_t first = index % parts * kExactRows;
    const std::int64_t part = std::min<std::int64_t>(kExactRows, count - first);
    const std::int64_t token = (bh / heads * count + first) * heads + bh % heads;
    const ExactTask task{
        .q = q,
        .k = k,
        .v = v,
        .batch = bh / heads,
        .head = bh % heads,
        .key_head = bh % heads / heads_per_group,
        .rows = rows.data() + first,
        .count = static_cast<int>(part),
        .mask = mask,
        .softmax_scale = softmax_scale,
        .out = out + token * channels,
        .out_stride = heads * channels,
        .log_sum_exp = log_sum_exp == nullptr ? nullptr : log_sum_exp + bh * count + first};
    HWY_DYNAMIC_DISPATCH(exact_rows)(task, *space);
  });
}

}  // namespace openvc::cpu
#endif  // HWY_ONCE
