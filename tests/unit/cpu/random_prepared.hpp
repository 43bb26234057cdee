// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>

#include "cpu/aligned_buffer.hpp"
#include "cpu/prepare.hpp"
#include "numerics/e4m3.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::cpu::testing {

/// Prepared inputs with random codes: what the attention kernel sees, without the preparation.
class RandomPrepared {
 public:
  struct Options {
    int extra_steps = 0;
    bool wide = false;
    int score_exponent = 0;
    bool with_log_sum_exp = true;
    float score_size = 1.0f;  // standard deviation of decoded Q and K
    /// Magnitudes below 2^-3 become zero. Scores are then multiples of 2^-12 and exact in binary32,
    /// in any order of summation.
    bool exact_scores = true;
    /// Padding of K and the rows of ones become NaN, padding of V the largest code. The CPU backend
    /// reads none of them.
    bool poisoned_padding = false;
    unsigned seed = 1;
  };

  RandomPrepared(const schedule::Problem& problem, const Options& options)
      : problem_(problem), options_(options), generator_(options.seed) {
    layout_ = schedule::prepared_layout(problem, options.extra_steps, options.with_log_sum_exp,
                                        kPackedFormat);
    buffer_ = AlignedBuffer<std::byte>(layout_.bytes + schedule::kSectionAlignment);
    const auto address = reinterpret_cast<std::uintptr_t>(buffer_.data());
    data_ = buffer_.data() + (schedule::kSectionAlignment - address % schedule::kSectionAlignment);
    std::memset(data_, 0, layout_.bytes);
    fill_scores();
    fill_values();
    fill_heads();
  }

  [[nodiscard]] schedule::PreparedView view() const {
    return {data_, problem_, layout_, options_.extra_steps, options_.with_log_sum_exp};
  }
  [[nodiscard]] std::byte* data() { return data_; }
  [[nodiscard]] const schedule::PreparedLayout& layout() const { return layout_; }

 private:
  [[nodiscard]] std::byte score_code() {
    constexpr float kSmallest = 0.125f;
    float x = normal_(generator_) * options_.score_size;
    if (options_.exact_scores && numerics::magnitude(x) < kSmallest) x = 0.0f;
    return static_cast<std::byte>(numerics::e4m3_encode(x));
  }

  /// Rows [first, first + count) of a section whose rows have `width` bytes.
  void fill_rows(std::size_t section, std::int64_t first, std::int64_t count, std::int64_t width) {
    for (std::int64_t i = first * width; i < (first + count) * width; ++i) {
      data_[section + static_cast<std::size_t>(i)] = score_code();
    }
  }

  void fill_scores() {
    const std::int64_t queries = layout_.query_rows;
    const std::int64_t keys = problem_.padded_keys();
    for (std::int64_t bh = 0; bh < problem_.batch_heads(); ++bh) {
      fill_rows(layout_.query_codes, bh * queries, problem_.queries, numerics::kHeadDim);
      fill_rows(layout_.key_codes, bh * keys, problem_.keys, numerics::kHeadDim);
      for (int step = 0; step < options_.extra_steps; ++step) {
        const std::int64_t plane = step * problem_.batch_heads() + bh;
        fill_rows(layout_.query_columns, plane * queries, problem_.queries,
                  numerics::kColumnsPerStep);
        fill_rows(layout_.key_columns, plane * keys, problem_.keys, numerics::kColumnsPerStep);
      }
      copy_repair_rows(bh);
      const std::int64_t repair_start = problem_.key_blocks() * numerics::kKeyBlock;
      pad_keys(bh, problem_.keys, repair_start);
      pad_keys(bh, repair_start + problem_.repair_rows, keys);
    }
  }

  /// Key rows [first, end).
  void pad_keys(std::int64_t bh, std::int64_t first, std::int64_t end) {
    for (std::int64_t row = first; row < end; ++row) {
      pad_row(layout_.key_codes, bh * problem_.padded_keys(), first - 1, row, numerics::kHeadDim);
      for (int step = 0; step < options_.extra_steps; ++step) {
        const std::int64_t plane = step * problem_.batch_heads() + bh;
        pad_row(layout_.key_columns, plane * problem_.padded_keys(), first - 1, row,
                numerics::kColumnsPerStep);
      }
    }
  }

  void pad_row(std::size_t section, std::int64_t base, std::int64_t last, std::int64_t row,
               std::int64_t width) {
    copy_row(section, base, last, row, width);
    if (!options_.poisoned_padding) return;
    std::memset(data_ + section + static_cast<std::size_t>((base + row) * width),
                numerics::kE4m3Nan, static_cast<std::size_t>(width));
  }

  /// A repair row holds the codes of a key that exists.
  void copy_repair_rows(std::int64_t bh) {
    for (std::int64_t row = 0; row < problem_.repair_rows; ++row) {
      const std::int64_t to = problem_.key_blocks() * numerics::kKeyBlock + row;
      const std::int64_t from = (row * 37 + 5) % problem_.keys;
      copy_row(layout_.key_codes, bh * problem_.padded_keys(), from, to, numerics::kHeadDim);
      for (int step = 0; step < options_.extra_steps; ++step) {
        const std::int64_t plane = step * problem_.batch_heads() + bh;
        copy_row(layout_.key_columns, plane * problem_.padded_keys(), from, to,
                 numerics::kColumnsPerStep);
      }
    }
  }

  void copy_row(std::size_t section, std::int64_t base, std::int64_t from, std::int64_t to,
                std::int64_t width) {
    std::memcpy(data_ + section + static_cast<std::size_t>((base + to) * width),
                data_ + section + static_cast<std::size_t>((base + from) * width),
                static_cast<std::size_t>(width));
  }

  void fill_values() {
    const std::int64_t repair_start = problem_.key_blocks() * numerics::kKeyBlock;
    for (std::int64_t bh = 0; bh < problem_.batch_heads(); ++bh) {
      for (std::int64_t key = 0; key < problem_.padded_keys(); ++key) {
        const bool counts = key < problem_.keys;
        const bool repairs = key >= repair_start && key < repair_start + problem_.repair_rows;
        for (int row = 0; row < layout_.value_rows(); ++row) {
          data_[layout_.value_code_at(bh, row, key)] = static_cast<std::byte>(
              row < numerics::kHeadDim ? value_code(counts || repairs) : ones_code(counts));
        }
      }
    }
  }

  [[nodiscard]] std::uint8_t value_code(bool exists) {
    if (exists) return numerics::e4m3_encode(normal_(generator_) * 120.0f);
    return options_.poisoned_padding ? numerics::kE4m3MaxCode : std::uint8_t{0};
  }

  [[nodiscard]] std::uint8_t ones_code(bool counts) const {
    if (options_.poisoned_padding) return numerics::kE4m3Nan;
    return counts ? numerics::kE4m3One : std::uint8_t{0};
  }

  void fill_heads() {
    for (std::int64_t bh = 0; bh < problem_.batch_heads(); ++bh) {
      const numerics::HeadRule rule =
          numerics::head_rule(options_.score_exponent, options_.wide, options_.extra_steps);
      std::memcpy(data_ + layout_.head_rule_at(bh), &rule, sizeof(rule));
    }
    const std::int64_t channels = problem_.batch_heads() * numerics::kHeadDim;
    fill_floats(layout_.value_scales, channels, 0.01f);
    fill_floats(layout_.value_means, channels, 1.0f);
    if (options_.with_log_sum_exp) {
      fill_floats(layout_.smoothing_shifts, problem_.batch_heads() * problem_.queries, 3.0f);
    }
  }

  void fill_floats(std::size_t section, std::int64_t count, float size) {
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = normal_(generator_) * size;
      std::memcpy(data_ + section + static_cast<std::size_t>(i) * sizeof(value), &value,
                  sizeof(value));
    }
  }

  schedule::Problem problem_;
  Options options_;
  std::mt19937 generator_;
  std::normal_distribution<float> normal_;
  schedule::PreparedLayout layout_;
  AlignedBuffer<std::byte> buffer_;
  std::byte* data_ = nullptr;
};

}  // namespace openvc::cpu::testing
