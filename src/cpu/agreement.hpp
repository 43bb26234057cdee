// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedule/problem.hpp"

// How far an attention kernel of a GPU may be from the CPU backend on the same prepared bytes.
//
// The CPU rounds a score to binary16 once; the tensor core rounds it after every k-step. The two
// differ in the last bits, so that a few per cent of the probabilities take the neighbouring code,
// which is 2^(1/8), 9 %, away. Rows that average many keys hide these steps, rows with few keys
// show single ones. The bounds below count steps: of n probabilities a share `flipped` may differ,
// and three standard deviations and kFewFlips more.
namespace openvc::cpu {

/// What attention returns, as dense binary32.
struct AttentionResult {
  std::vector<float> output;       // [B][Sq][H][D]
  std::vector<float> log_sum_exp;  // [B][H][Sq], or empty
};

struct Bounds {
  /// Share of the probabilities whose code may differ. On unit Gaussian inputs the measured
  /// distance of 0.4 to 1.6 % belongs to 0.2 to 3 %.
  double flipped = 0.05;
  /// Share of rows that need not agree: with scores of thousands of code units two keys can lie
  /// within one step of binary16, and the backends then disagree about the larger.
  double undecided_rows = 0.0;
  /// Nats, root mean square over the rows of a head. A single row, which may rest on one key, is
  /// allowed a code step more.
  double log_sum_exp = 0.02;
};

/// Every k-step is one more rounding of the scores to binary16.
inline constexpr Bounds kWithExtraSteps{.flipped = 0.08};

/// The FP8 accumulator truncates to 14 bits until it is promoted, after every key block: at most
/// the 0.05 to 0.2 % that were measured on sums of one sign over 256 keys.
inline constexpr double kAccumulation = 0.002;

inline constexpr double kCodeStep = 0.0905;     // 2^(1/8) - 1
inline constexpr double kCodeStepNats = 0.087;  // ln(2) / 8

/// Both results round to bfloat16 at worst, and a last bit apart becomes a step apart.
inline constexpr double kOutputRounding = 0.002;

/// One row of [B][Sq][H][D].
std::span<const float> output_row(const schedule::Problem& p, const std::vector<float>& all,
                                  std::int64_t bh, std::int64_t query);

double squared_norm(std::span<const float> x);

/// Where two results of head `bh` are further apart than the bounds allow; empty if nowhere.
std::string head_disagreement(const schedule::Problem& p, const AttentionResult& actual,
                              const AttentionResult& expected, std::int64_t bh,
                              const Bounds& bounds);

/// The same of the first head that disagrees.
std::string disagreement(const schedule::Problem& p, const AttentionResult& actual,
                         const AttentionResult& expected, const Bounds& bounds = {});

}  // namespace openvc::cpu
