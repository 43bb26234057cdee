// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "cpu/aligned_buffer.hpp"
#include "cpu/attention_kernel.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/half.hpp"
#include "numerics/key_permutation.hpp"
#include "numerics/online_softmax.hpp"

// The vector code must give the bytes of numerics::probability_code().
namespace openvc::cpu {
namespace {

using numerics::HeadRule;
using numerics::kKeyBlock;
using numerics::RowState;

float half(std::uint32_t bits) { return numerics::half_to_float(static_cast<std::uint16_t>(bits)); }

/// One tile of scores, its rows' state, and what the kernel made of both.
class Tile {
 public:
  explicit Tile(const AttentionKernel& kernel)
      : kernel_(kernel),
        scores_(static_cast<std::size_t>(kKeyBlock * kernel.group)),
        block_max_(static_cast<std::size_t>(kernel.group)),
        probabilities_(kernel.word_bytes(kKeyBlock * kernel.group)) {}

  float& score(int key, int lane) { return scores_.data()[key * kernel_.group + lane]; }
  void set_row(int lane, const RowState& row) { rows_.set_row(row_index(lane), row); }
  [[nodiscard]] RowState row(int lane) const { return rows_.row(row_index(lane)); }
  [[nodiscard]] float weight(int lane) const { return rows_.weight[row_index(lane)]; }
  [[nodiscard]] float rescale(int lane) const { return rows_.rescale[row_index(lane)]; }

  /// Returns whether a rescale was reported.
  bool cast(const HeadRule& rule, bool repair, int used_keys = kKeyBlock) {
    bool has_nan = false;
    for (int lane = 0; lane < kernel_.group; ++lane) {
      // Unrounded, as the kernel's maximum is: it may lie between two binary16 numbers.
      float maximum = -numerics::infinity();
      for (int key = 0; key < used_keys; ++key) {
        const float x = score(key, lane);
        has_nan = has_nan || x != x;
        maximum = std::max(maximum, x);
      }
      block_max_.data()[lane] = maximum;
    }
    return kernel_.cast({.scores = scores_.data(),
                         .block_max = block_max_.data(),
                         .used_keys = used_keys,
                         .rule = rule,
                         .has_nan = has_nan,
                         .repair = repair,
                         .rows = &rows_,
                         .first_query = kernel_.group,
                         .probabilities = probabilities_.data()});
  }

  /// Byte of the probability that the kernel stored for a key.
  [[nodiscard]] std::uint8_t code(int key, int lane) const {
    const int slot = numerics::slot_of_key(key);
    const int elements = kernel_.word_elements;
    std::uint32_t word = 0;
    std::memcpy(&word,
                probabilities_.data() +
                    static_cast<std::size_t>(slot / elements * kernel_.group + lane) * sizeof(word),
                sizeof(word));
    if (elements == 2) word = slot % 2 == 0 ? word << 16 : word & 0xFFFF'0000u;
    const float value = numerics::float_from_bits(word);
    return value != value ? numerics::kNanProbability : numerics::e4m3_encode(value);
  }

 private:
  // The second group of a block: the first one must stay untouched.
  [[nodiscard]] int row_index(int lane) const { return kernel_.group + lane; }

  const AttentionKernel& kernel_;
  AlignedBuffer<float> scores_;
  AlignedBuffer<float> block_max_;
  AlignedBuffer<std::byte> probabilities_;
  RowStates rows_{};
};

constexpr HeadRule kNarrow = numerics::head_rule(0, false);
constexpr HeadRule kRules[] = {kNarrow, numerics::head_rule(0, true), numerics::head_rule(1, true),
                               numerics::head_rule(7, true), numerics::head_rule(31, true)};

/// All finite binary16 numbers and -infinity, in ascending order.
std::vector<float> halves_and_minus_infinity() {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float x = half(bits);
    if (x == x && x != numerics::infinity()) values.push_back(x);
  }
  std::ranges::sort(values);
  return values;
}

// Every binary16 score below tops of all sizes.
TEST(AttentionCast, EveryScoreGivesTheByteOfTheContract) {
  const std::vector<float> values = halves_and_minus_infinity();
  const float tops[] = {-65504.0f, -2049.0f, -640.0f, -126.5f, -0.25f,   0.0f,
                        half(1),   0.5f,     1.0f,    1.5f,    119.5f,   126.0f,
                        640.0f,    1000.0f,  2046.0f, 3001.0f, 33333.0f, 65504.0f};
  for (const AttentionKernel* kernel : all_attention_kernels()) {
    Tile tile(*kernel);
    const int others = kKeyBlock - 1;  // the first key of every lane is the top
    const auto tile_size = static_cast<std::size_t>(others * kernel->group);
    for (const HeadRule& rule : kRules) {
      for (float unrounded : tops) {
        const float top = half(numerics::float_to_half(unrounded));
        if (!rule.wide() && numerics::magnitude(top) > 700.0f) continue;
        const auto end =
            static_cast<std::size_t>(std::ranges::upper_bound(values, top) - values.begin());
        for (std::size_t first = 0; first < end; first += tile_size) {
          const auto at = [&](int key, int lane) {
            if (key == 0) return top;
            const std::size_t i = first + static_cast<std::size_t>(lane * others + key - 1);
            return values[std::min(i, end - 1)];
          };
          for (int lane = 0; lane < kernel->group; ++lane) {
            tile.set_row(lane, numerics::empty_row(rule));
            for (int key = 0; key < kKeyBlock; ++key) tile.score(key, lane) = at(key, lane);
          }
          tile.cast(rule, true);
          for (int lane = 0; lane < kernel->group; ++lane) {
            RowState row = numerics::empty_row(rule);
            const numerics::BlockCast block = numerics::begin_block(row, top, rule);
            ASSERT_EQ(tile.row(lane).sum, 0.0f) << "repair rows are outside of the sum";
            ASSERT_EQ(tile.weight(lane), block.weight) << top;
            for (int key = 0; key < kKeyBlock; ++key) {
              ASSERT_EQ(int{tile.code(key, lane)},
                        int{numerics::probability_code(at(key, lane), block, rule)})
                  << kernel->name << " exponent " << rule.score_exponent << " wide " << rule.wide()
                  << " top " << top << " score " << at(key, lane);
            }
          }
        }
      }
    }
  }
}

bool same(float a, float b) { return a == b || (a != a && b != b); }

/// Random walks over several blocks: bytes, state, weight and rescale of every row.
void expect_walk(const AttentionKernel& kernel, const HeadRule& rule, float size, bool with_nan,
                 unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Tile tile(kernel);
  std::vector<RowState> rows(static_cast<std::size_t>(kernel.group), numerics::empty_row(rule));
  for (int lane = 0; lane < kernel.group; ++lane) tile.set_row(lane, numerics::empty_row(rule));
  for (int step = 0; step < 8; ++step) {
    const int used = step == 5 ? 48 : kKeyBlock;
    const bool repair = step == 7;
    for (int lane = 0; lane < kernel.group; ++lane) {
      // Some rows see nothing at first, others nothing later.
      const bool masked = (lane % 5 == 0 && step < 3) || (lane % 7 == 0 && step == 4);
      for (int key = 0; key < used; ++key) {
        float x = half(numerics::float_to_half(
            numerics::saturate(normal(generator) * size, numerics::kHalfMax)));
        if (masked || generator() % 16 == 0) x = -numerics::infinity();
        if (with_nan && step % 2 == 1 && generator() % 500 == 0) x = numerics::quiet_nan();
        tile.score(key, lane) = x;
      }
    }
    const bool rescaled = tile.cast(rule, repair, used);
    for (int lane = 0; lane < kernel.group; ++lane) {
      SCOPED_TRACE(::testing::Message()
                   << kernel.name << " exponent " << rule.score_exponent << " wide " << rule.wide()
                   << " size " << size << " step " << step << " lane " << lane);
      RowState& row = rows[static_cast<std::size_t>(lane)];
      float top = numerics::kLeastTop;
      for (int key = 0; key < used; ++key) top = std::max(top, tile.score(key, lane));
      const numerics::BlockCast block = numerics::begin_block(row, top, rule);
      double sum = 0.0;
      for (int key = 0; key < used; ++key) {
        const std::uint8_t code = numerics::probability_code(tile.score(key, lane), block, rule);
        sum += numerics::e4m3_decode(code);
        ASSERT_EQ(int{tile.code(key, lane)}, int{code}) << "key " << key;
      }
      if (!repair) numerics::end_block(row, block, static_cast<float>(sum));
      ASSERT_EQ(rescaled ? tile.rescale(lane) : 1.0f, block.rescale);
      ASSERT_EQ(tile.weight(lane), block.weight);
      ASSERT_EQ(tile.row(lane).reference, row.reference);
      ASSERT_TRUE(same(tile.row(lane).sum, row.sum)) << tile.row(lane).sum << ' ' << row.sum;
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(AttentionCast, RowsWalkLikeTheContract) {
  for (const AttentionKernel* kernel : all_attention_kernels()) {
    for (const HeadRule& rule : kRules) {
      for (float size : {0.01f, 3.0f, 40.0f, 150.0f, 1000.0f, 20000.0f}) {
        if (!rule.wide() && size > 150.0f) continue;
        for (bool with_nan : {false, true}) {
          expect_walk(*kernel, rule, size, with_nan, 17);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace openvc::cpu
