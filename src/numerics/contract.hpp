// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// The numbers that were chosen and change result bits. A backend chooses its own tiles, stages and
// registers; it chooses none of these. docs/numerics.md explains each and shows the measurements.
//
// The rules live in the other headers of this folder, which name the members they use
// (kPeakCode = kContract.peak_code). Properties of the formats (E4M3, binary16, binary32) and of
// arithmetic (ln 2), and what keeps a rule within them (the thresholds of Gram-Schmidt, the grid of
// a basis), are no choice and stay with their rules.
//
// tests/golden holds the bytes that each version produces for a fixed sweep: a changed number, or a
// changed rule, fails there until the version is raised.
namespace openvc::numerics {

struct Contract {
  /// Raised whenever equal inputs may give other bytes than before.
  int version;

  // Blocks and order.
  int key_block;          ///< keys that are a softmax of their own: one offset, one exact maximum
  int query_block;        ///< consecutive queries that visit the key blocks in one order
  int mid_window_blocks;  ///< key blocks right of a query's own at which mid-window order starts
  int key_group;          ///< keys that packed V permutes among each other
  int reduction_group;    ///< values that one level of a canonical sum reduces to one
  int reduction_lanes;    ///< partial sums of such a group
  int row_chunk;          ///< channels that one owner adds in order in a sum over a row

  // Scales of Q and K.
  int twice_log2_score_limit;   ///< scores stay below 2^(this / 2) in their accumulator
  int max_score_exponent;       ///< scores count at most 2^this code units
  int min_safe_exponent;        ///< magnitudes from 2^this on have squares that sum safely,
  int max_safe_exponent;        ///< up to 2^this
  float max_centred_magnitude;  ///< means are removed and heads rotated only below it

  // Residual columns and rotation.
  int columns_per_step;           ///< columns of one k-step: 32 bytes of a tensor-core product
  int max_extra_steps;            ///< k-steps of residual columns of a head
  int residual_balance;           ///< a residual is stored times 2^this, its partner times 2^-this
  float rounding_error;           ///< relative error of an E4M3 number, RMS over an octave
  float rotation_variance_share;  ///< rotation must go below this share of the variance without
  int query_rotation_exponent;    ///< Q is rotated by the Hadamard matrix times 2^this,
  int key_rotation_exponent;      ///< K times 2^this

  // Probabilities.
  int peak_code;             ///< of the largest probability of a key block
  float narrow_score_limit;  ///< bound of |score|, code units, up to which a head is narrow
  int narrow_max_keys;       ///< and most keys of such a head

  // V.
  int value_columns;  ///< residual columns of V: its strongest axes, where it is coded on axes
  int min_value_axes_keys;  ///< fewest keys of heads whose V is coded on axes
  float min_spread;         ///< below it a channel counts as constant
  float min_mean_share;     ///< a mean below this share of the largest magnitude stays

  // Principal axes of Q and K.
  int sample_tokens;          ///< that moments are taken from
  int axes_rounds;            ///< of orthogonal iteration
  int min_log2_axes_scores;   ///< heads with fewer scores than 2^this are not worth their axes
  float axes_variance_share;  ///< axes must go below this share of the variance without

  // Principal axes of V.
  float value_axes_min_share;   ///< of V's energy that the residual columns must hold
  int value_axes_max_exponent;  ///< elements of V are below 2^this
  int value_axes_max_peak;      ///< squared row norms are at most 2^this times their mean
};

inline constexpr Contract kContractV2{
    .version = 2,

    .key_block = 128,
    .query_block = 256,
    .mid_window_blocks = 4,
    // What a tensor-core accumulator fragment and the next operand exchange without a shuffle.
    .key_group = 16,
    // A block of threads reads 16 rows at a time; eight of them are a group, and a tile.
    .reduction_group = 128,
    .reduction_lanes = 16,
    // 16 bytes of a 16-bit type: what one thread loads.
    .row_chunk = 8,

    // 2^15.5 leaves room below binary16's 65504 for rounding and for residual columns.
    .twice_log2_score_limit = 31,
    .max_score_exponent = 31,
    .min_safe_exponent = -40,
    .max_safe_exponent = 50,
    .max_centred_magnitude = 0x1p100f,

    .columns_per_step = 32,
    .max_extra_steps = 4,
    .residual_balance = 2,
    .rounding_error = 0.026f,
    .rotation_variance_share = 0.6f,
    .query_rotation_exponent = -3,
    .key_rotation_exponent = -4,

    // The largest finite E4M3 code, 448.0: the maximum of a block is exact and needs no headroom.
    .peak_code = 0x7E,
    // 64 octaves either way: a weight of a block, its codes, those of V and the number of keys fit
    // into binary32 together (plan_scores.hpp). Captured heads stay below 370.
    .narrow_score_limit = 512.0f,
    .narrow_max_keys = 1 << 24,

    // Tensor cores take columns by eights: seven are left beside 128 channels and the row of ones.
    .value_columns = 7,
    // Twice the tokens of a sample.
    .min_value_axes_keys = 4096,
    .min_spread = 0x1p-110f,
    .min_mean_share = 1.0f / 16.0f,

    .sample_tokens = 2048,
    .axes_rounds = 2,
    // Finding and using axes takes an H200 some 0.3 ms in a call of few heads: what a k-step takes
    // in 24 heads of 16,384 tokens.
    .min_log2_axes_scores = 28,
    .axes_variance_share = 0.8f,

    .value_axes_min_share = 0.15f,
    // Averages of V on axes stay in binary16, with room for the square root of 128.
    .value_axes_max_exponent = 11,
    // E4M3's normal numbers span 2^15 below 448.
    .value_axes_max_peak = 17,
};

/// The contract of this build.
inline constexpr Contract kContract = kContractV2;
inline constexpr int kContractVersion = kContract.version;

/// Channels per head, the one size that is instantiated so far: rules are templates over it, and it
/// is a property of the problem (schedule::Problem::head_dim). Other sizes are refused.
inline constexpr int kHeadDim = 128;

// Names of the numbers that many rules share.
inline constexpr int kKeyBlock = kContract.key_block;
inline constexpr int kQueryBlock = kContract.query_block;
inline constexpr int kMidWindowBlocks = kContract.mid_window_blocks;
inline constexpr int kColumnsPerStep = kContract.columns_per_step;
inline constexpr int kValueColumns = kContract.value_columns;
inline constexpr std::int64_t kMinValueAxesKeys = kContract.min_value_axes_keys;
inline constexpr int kMaxExtraSteps = kContract.max_extra_steps;

/// A residual channel takes two columns, q_lo x k_hi and q_hi x k_lo.
inline constexpr int kResidualChannelsPerStep = kColumnsPerStep / 2;

}  // namespace openvc::numerics
