// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/canonical_sum.hpp"
#include "numerics/contract.hpp"
#include "numerics/energy_rank.hpp"
#include "numerics/moments.hpp"
#include "numerics/statistics.hpp"
#include "numerics/team.hpp"

// The principal axes of a head's Q and K: those of M = Cq / tr Cq + Ck / tr Ck, Cq the second
// moments of Q and Ck the covariances of K. Residual columns cover the strongest; the rest of the
// space gets a mixed basis (orthogonal_basis.hpp), so that no column of it stands out.
//
// Orthogonal iteration from the strongest channels: products with M, then Gram-Schmidt. What comes
// first does not depend on what follows, so the axes of one step are the first of those of four.
// The number of rounds is fixed, and so is the order of every operation: threads share columns and
// parts of sums, never a decision.
namespace openvc::numerics {

/// Axes of the largest number of steps.
inline constexpr int kMaxAxes = kMaxExtraSteps * kResidualChannelsPerStep;

/// Parts of a sum over a column, added as a balanced tree (row_dot).
template <int kDim>
inline constexpr int kColumnChunks = kDim / kRowChunk;

/// Working memory; matrices are stored by rows.
template <int kDim>
struct AxesStorageOf {
  float matrix[kDim * kDim];
  float axes[kDim * kMaxAxes];
  float products[kDim * kMaxAxes];
  float partials[kColumnChunks<kDim> * kMaxAxes];
  float squares[kMaxAxes];
  float factors[kMaxAxes];
  float energies[kDim];
  std::int32_t order[kDim];
  float trace;
  std::int32_t largest;  ///< exponent
};
using AxesStorage = AxesStorageOf<kHeadDim>;

/// Part of the dot products of column `left` of `a` with the columns of `b` from the block of
/// kWidth on that holds column `first`. Rows before `first_row` do not count.
template <int kDim, class Team>
[[gnu::always_inline]] OPENVC_HD constexpr void partial_dots(const Team& team, const float* a,
                                                             int left, const float* b, int columns,
                                                             int first, int first_row,
                                                             float* partials) {
  constexpr int kWidth = Team::kWidth;
  const int first_block = first / kWidth;
  const int blocks = columns / kWidth - first_block;
  team.run(
      kColumnChunks<kDim> * blocks, [&](int task) __attribute__((always_inline)) {
        const int chunk = task / blocks;
        const int column = (first_block + task % blocks) * kWidth;
        float sums[kWidth] = {};
        for (int i = 0; i < kRowChunk; ++i) {
          const int row = chunk * kRowChunk + i;
          if (row < first_row) continue;
          const float x = a[row * columns + left];
          const float* y = b + row * columns + column;
          for (int w = 0; w < kWidth; ++w) sums[w] = __builtin_fmaf(x, y[w], sums[w]);
        }
        for (int w = 0; w < kWidth; ++w) partials[chunk * columns + column + w] = sums[w];
      });
}

/// The dot product of a column from its parts.
template <int kDim>
[[gnu::always_inline]] OPENVC_HD constexpr float join_partials(const float* partials, int columns,
                                                               int column) {
  float chunks[kColumnChunks<kDim>] = {};
  for (int i = 0; i < kColumnChunks<kDim>; ++i) chunks[i] = partials[i * columns + column];
  return sum_balanced(chunks, kColumnChunks<kDim>);
}

/// out = symmetric matrix times x; every element a chain of fused multiply-adds over the rows.
template <int kDim, class Team>
[[gnu::always_inline]] OPENVC_HD constexpr void multiply_symmetric(const Team& team,
                                                                   const float* matrix,
                                                                   const float* x, int columns,
                                                                   float* out) {
  constexpr int kRows = 4;
  constexpr int kWidth = Team::kProductWidth;
  const int blocks = columns / kWidth;
  team.run(
      kDim / kRows * blocks, [&](int task) __attribute__((always_inline)) {
        const int row = task / blocks * kRows;
        const int column = task % blocks * kWidth;
        float sums[kRows][kWidth] = {};
        for (int k = 0; k < kDim; ++k) {
          const float* m = matrix + k * kDim + row;
          const float* y = x + k * columns + column;
          for (int r = 0; r < kRows; ++r) {
            for (int w = 0; w < kWidth; ++w) sums[r][w] = __builtin_fmaf(m[r], y[w], sums[r][w]);
          }
        }
        for (int r = 0; r < kRows; ++r) {
          for (int w = 0; w < kWidth; ++w) out[(row + r) * columns + column + w] = sums[r][w];
        }
      });
}

/// What is left of a column after earlier ones counts as rounding below this share of its square.
inline constexpr float kDependentShare = exp2_int(-36);
inline constexpr float kMinSquare = exp2_int(-100);

/// Modified Gram-Schmidt; columns that depend on earlier ones become zero.
template <int kDim, class Team>
[[gnu::always_inline]] OPENVC_HD constexpr void orthonormalize(const Team& team, float* x,
                                                               int columns,
                                                               AxesStorageOf<kDim>& storage) {
  constexpr int kWidth = Team::kWidth;
  float* partials = storage.partials;
  float* squares = storage.squares;  // before, then 1 / norm after
  float* factors = storage.factors;
  team.run(
      columns, [&](int j) __attribute__((always_inline)) {
        const auto at = [&](int row) { return x[row * columns + j]; };
        squares[j] = row_sum_squares<kDim>(at);
      });
  for (int i = 0; i < columns; ++i) {
    partial_dots<kDim>(team, x, i, x, columns, i, 0, partials);
    team.run(
        columns - i, [&](int task) __attribute__((always_inline)) {
          const float square = join_partials<kDim>(partials, columns, i);
          const bool usable = square > kMinSquare && square > kDependentShare * squares[i];
          const int j = i + task;
          if (j > i) {
            factors[j] = usable ? -(join_partials<kDim>(partials, columns, j) / square) : 0.0f;
          } else {
            factors[i] = usable ? 1.0f / __builtin_sqrtf(square) : 0.0f;
          }
        });
    const int first_block = (i + 1) / kWidth;
    const int blocks = columns / kWidth - first_block;
    if (blocks == 0) continue;
    team.run(
        kDim * blocks, [&](int task) __attribute__((always_inline)) {
          float* row = x + task / blocks * columns;
          const int column = (first_block + task % blocks) * kWidth;
          const float pivot = row[i];
          for (int w = 0; w < kWidth; ++w) {
            const int j = column + w;
            row[j] = j > i ? __builtin_fmaf(pivot, factors[j], row[j]) : row[j];
          }
        });
  }
  team.run(
      kDim * columns, [&](int task) __attribute__((always_inline)) {
        x[task] = x[task] * factors[task % columns];
      });
}

/// A tensor of a head, for its axes.
template <int kDim>
struct AxesTensorOf {
  const MomentsOf<kDim>& moments;
  int tokens;    ///< of the sample
  bool centred;  ///< moments about the mean
};
using AxesTensor = AxesTensorOf<kHeadDim>;

/// Leaves the largest exponent and the trace of a tensor's moments in the storage.
template <int kDim, class Team>
[[gnu::always_inline]] OPENVC_HD constexpr void find_trace(const Team& team,
                                                           const AxesTensorOf<kDim>& tensor,
                                                           AxesStorageOf<kDim>& storage) {
  // largest_exponent, a level at a time.
  std::int32_t* exponents = storage.order;
  team.run(
      kDim, [&](int c) __attribute__((always_inline)) {
        exponents[c] = tensor.moments.scales[c].exponent;
      });
  for (int stride = 1; stride < kDim; stride *= 2) {
    team.run(
        kDim / (2 * stride), [&](int i) __attribute__((always_inline)) {
          const std::int32_t other = exponents[2 * stride * i + stride];
          std::int32_t& largest = exponents[2 * stride * i];
          largest = other > largest ? other : largest;
        });
  }
  team.run(
      1, [&](int) __attribute__((always_inline)) { storage.largest = exponents[0]; });
  float* energies = storage.energies;
  team.run(
      kDim, [&](int c) __attribute__((always_inline)) {
        energies[c] = moment(tensor.moments, tensor.tokens, tensor.centred, storage.largest, c, c);
      });
  // sum_balanced, a level at a time.
  for (int stride = 1; stride < kDim; stride *= 2) {
    team.run(
        kDim / (2 * stride), [&](int i) __attribute__((always_inline)) {
          energies[2 * stride * i] = energies[2 * stride * i] + energies[2 * stride * i + stride];
        });
  }
  team.run(
      1, [&](int) __attribute__((always_inline)) { storage.trace = energies[0]; });
}

/// matrix = the tensor's second moments over their trace, or that added to it. False, and nothing
/// else, if the tensor has no energy.
template <int kDim, class Team>
[[gnu::always_inline]] OPENVC_HD constexpr bool normalized_moments(const Team& team,
                                                                   const AxesTensorOf<kDim>& tensor,
                                                                   bool add,
                                                                   AxesStorageOf<kDim>& storage) {
  const AxesTensorOf<kDim> near{team.fetch(tensor.moments), tensor.tokens, tensor.centred};
  find_trace<kDim>(team, near, storage);
  const float sum = storage.trace;
  const int largest = storage.largest;
  if (!(sum > 0.0f)) return false;
  const float unit = 1.0f / sum;
  // Pairs of channels, a diagonal after the other, as if the matrix went round: neighbouring tasks
  // have neighbouring rows and columns. Half of the last diagonal is the other half.
  constexpr int kPairs = kDim / 2 * kDim + kDim / 2;
  team.run(
      kPairs, [&](int task) __attribute__((always_inline)) {
        const int i = task % kDim;
        const int j = (i + task / kDim) % kDim;
        const float product =
            moment(near.moments, near.tokens, near.centred, largest, i < j ? i : j, i < j ? j : i);
        const float share = product * unit;
        const float element = add ? storage.matrix[i * kDim + j] + share : share;
        storage.matrix[i * kDim + j] = element;
        storage.matrix[j * kDim + i] = element;
      });
  return true;
}

/// The columns of `matrix` that belong to its `columns` largest diagonal elements.
template <int kDim, class Team>
[[gnu::always_inline]] OPENVC_HD constexpr void take_strongest_columns(
    const Team& team, const float* matrix, int columns, AxesStorageOf<kDim>& storage) {
  team.run(
      kDim, [&](int c)
                __attribute__((always_inline)) { storage.energies[c] = matrix[c * kDim + c]; });
  team.run(
      kDim, [&](int c) __attribute__((always_inline)) {
        storage.order[count_before(storage.energies, 0, kDim, c, storage.energies[c])] = c;
      });
  team.run(
      kDim * columns, [&](int task) __attribute__((always_inline)) {
        const int row = task / columns;
        const int j = task % columns;
        storage.axes[row * columns + j] = matrix[row * kDim + storage.order[j]];
      });
}

/// Axes of the matrix in the storage.
template <int kDim, class Team>
[[gnu::always_inline]] OPENVC_HD constexpr void iterate_axes(const Team& team, int columns,
                                                             AxesStorageOf<kDim>& storage) {
  take_strongest_columns<kDim>(team, storage.matrix, columns, storage);
  orthonormalize<kDim>(team, storage.axes, columns, storage);
  for (int round = 0; round < kContract.axes_rounds; ++round) {
    multiply_symmetric<kDim>(team, storage.matrix, storage.axes, columns, storage.products);
    multiply_symmetric<kDim>(team, storage.matrix, storage.products, columns, storage.axes);
    orthonormalize<kDim>(team, storage.axes, columns, storage);
  }
}

/// Sums of shares are known to this part of the whole only.
inline constexpr float kSharePrecision = exp2_int(-20);

/// What of a tensor's energy is outside of the first `count` axes; a multiple of a step's.
OPENVC_HD constexpr float outside_share(const float* shares, int count) {
  float inside = 0.0f;
  for (int first = 0; first < count; first += kResidualChannelsPerStep) {
    float step[kResidualChannelsPerStep] = {};
    for (int i = 0; i < kResidualChannelsPerStep; ++i) step[i] = shares[first + i];
    inside = inside + sum_balanced(step, kResidualChannelsPerStep);
  }
  const float outside = 1.0f - inside;
  return outside > kSharePrecision ? outside : kSharePrecision;
}

/// Leaves x . matrix x of every axis in storage.energies.
template <int kDim, class Team>
[[gnu::always_inline]] OPENVC_HD constexpr void axis_energies(const Team& team, int columns,
                                                              AxesStorageOf<kDim>& storage) {
  multiply_symmetric<kDim>(team, storage.matrix, storage.axes, columns, storage.products);
  team.run(
      columns, [&](int j) __attribute__((always_inline)) {
        const auto axis = [&](int row) { return storage.axes[row * columns + j]; };
        const auto image = [&](int row) { return storage.products[row * columns + j]; };
        storage.energies[j] = row_dot<kDim>(axis, image);
      });
}

/// What of a tensor is outside of the axes of every number of steps.
template <class Team>
[[gnu::always_inline]] OPENVC_HD constexpr void outside_shares(const Team& team, int columns,
                                                               const float* energies,
                                                               float* outside) {
  team.run(
      kExtraStepChoices, [&](int i) __attribute__((always_inline)) {
        const int count = extra_step_choice(i) * kResidualChannelsPerStep;
        outside[i] = count <= columns ? outside_share(energies, count) : 1.0f;
      });
}

/// Leaves `columns` axes (a multiple of those of a step) in storage.axes, [kDim][columns], and what
/// they hold in `shares`. The strong ones are orthonormal but for rounding; weak ones, beyond
/// binary32's precision of the whole, are less so, or zero where the moments have no more
/// directions, or where the strongest channels are copies of each other. A head with a constant
/// tensor has no axes. All of a team pass `shares` that they share.
template <int kDim, class Team>
[[gnu::always_inline]] OPENVC_HD constexpr void principal_axes(
    const Team& team, const AxesTensorOf<kDim>& query, const AxesTensorOf<kDim>& key, int columns,
    AxesStorageOf<kDim>& storage, AxisShares& shares) {
  const bool known = normalized_moments<kDim>(team, query, false, storage) &&
                     normalized_moments<kDim>(team, key, true, storage);
  team.run(
      1, [&](int) __attribute__((always_inline)) {
        shares.steps = known ? columns / kResidualChannelsPerStep : 0;
      });
  if (!known) return;
  iterate_axes<kDim>(team, columns, storage);
  // Energies of both together, then of K, which leaves those of Q.
  axis_energies<kDim>(team, columns, storage);
  team.run(
      columns, [&](int j)
                   __attribute__((always_inline)) { storage.squares[j] = storage.energies[j]; });
  normalized_moments<kDim>(team, key, false, storage);
  axis_energies<kDim>(team, columns, storage);
  team.run(
      columns, [&](int j) __attribute__((always_inline)) {
        storage.squares[j] = storage.squares[j] - storage.energies[j];
      });
  outside_shares(team, columns, storage.squares, shares.query);
  outside_shares(team, columns, storage.energies, shares.key);
}

/// Axes of V that are computed: those with residual columns, and what completes a multiple of
/// eight.
inline constexpr int kValueAxes = static_cast<int>(round_up(kValueColumns, 8));

/// The same of V alone; kValueAxes axes.
template <int kDim, class Team>
[[gnu::always_inline]] OPENVC_HD constexpr void value_axes(const Team& team,
                                                           const AxesTensorOf<kDim>& tensor,
                                                           AxesStorageOf<kDim>& storage,
                                                           ValueAxes& axes) {
  const bool known = normalized_moments<kDim>(team, tensor, false, storage);
  team.run(
      1, [&](int) __attribute__((always_inline)) {
        axes.known = known ? 1 : 0;
        const auto tokens = static_cast<float>(tensor.tokens);
        const float unit = exp2_int(storage.largest);
        axes.mean_square = storage.trace / tokens / tokens * unit * unit;
        axes.inside = 0.0f;
      });
  if (!known) return;
  iterate_axes<kDim>(team, kValueAxes, storage);
  axis_energies<kDim>(team, kValueAxes, storage);
  team.run(
      1, [&](int) __attribute__((always_inline)) {
        float shares[kValueAxes] = {};
        for (int i = 0; i < kValueColumns; ++i) shares[i] = storage.energies[i];
        axes.inside = sum_balanced(shares, kValueAxes);
      });
}

}  // namespace openvc::numerics
