// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "numerics/half.hpp"
#include "numerics/principal_axes.hpp"
#include "numerics/team.hpp"

// The orthogonal matrix U = [axes | mixed rest] that Q and K of a head are multiplied by.
//
// With F the normalised Hadamard matrix, Householder reflections H_i reduce F X to a triangle, so
// that the first columns of U = F H_1 ... H_m span what the first columns of X do, and the others,
// columns of F but for m reflections, have nearly equal energies. U is orthogonal whatever X is:
// axes that are zero leave a column of the mix in their place.
namespace openvc::numerics {

/// F X and kChannels columns of F, side by side and by rows: the reflections turn them into a
/// triangle and those columns of U^T, which several teams may share.
template <int kDim, int kChannels = kDim>
struct BasisStorageOf {
  static constexpr int kMaxColumns = kMaxAxes + kChannels;
  float rows[kDim * kMaxColumns];
  float partials[kColumnChunks<kDim> * kMaxColumns];
  float factors[kMaxColumns];
  float pivot;
};
using BasisStorage = BasisStorageOf<kHeadDim>;

/// 1 / sqrt(kDim).
template <int kDim>
OPENVC_HD constexpr float normalized_hadamard_element() {
  static_assert(kDim == 128 || kDim == 64);
  return kDim == 128 ? 0.088388346f : 0.125f;
}

/// Sign of an element of the Hadamard matrix in natural order.
OPENVC_HD constexpr bool hadamard_is_negative(int row, int column) {
  auto common = static_cast<unsigned>(row & column);
  bool odd = false;
  for (; common != 0; common &= common - 1) odd = !odd;
  return odd;
}

/// Elements of U are multiples of 2^-this, and those of the mixed rest bfloat16 numbers, which are
/// binary16 numbers then: tensor cores multiply them with inputs of either type as they are. What
/// an axis errs by would meet the largest coordinates, so axes are sums of two numbers of either
/// type. V comes back through the rows of U: channels that are hundreds of times weaker than others
/// get a part of what the mixed columns err by.
inline constexpr int kBasisFractionBits = 16;

OPENVC_HD constexpr float round_basis(float x, bool is_axis) {
  constexpr float kToGrid = 1.5f * exp2_int(kFloatMantissaBits - kBasisFractionBits);
  const float on_grid = (x + kToGrid) - kToGrid;
  return is_axis ? on_grid : bfloat16_to_float(float_to_bfloat16(on_grid));
}

/// An element as two bfloat16 numbers, whose sum is exact; the second is zero off the axes.
struct BasisTerms {
  std::uint16_t high;
  std::uint16_t low;
};
OPENVC_HD constexpr BasisTerms basis_terms(float x) {
  const std::uint16_t high = float_to_bfloat16(x);
  return {high, float_to_bfloat16(x - bfloat16_to_float(high))};
}

/// Axes of a head: `columns` of a matrix of kDim rows.
struct AxesView {
  const float* data;
  int stride;
  int columns;
};

/// Fills storage.rows with F X and the columns of F from `first_channel` on.
template <int kDim, int kChannels, class Team>
[[gnu::always_inline]] OPENVC_HD constexpr void start_basis(
    const Team& team, const AxesView& axes, int first_channel,
    BasisStorageOf<kDim, kChannels>& storage) {
  constexpr float kElement = normalized_hadamard_element<kDim>();
  const int columns = axes.columns;
  const int width = columns + kChannels;
  float* rows = storage.rows;
  team.run(
      kDim * width, [&](int task) __attribute__((always_inline)) {
        const int row = task / width;
        const int j = task % width;
        if (j < columns) {
          rows[task] = axes.data[row * axes.stride + j];
        } else {
          rows[task] =
              hadamard_is_negative(row, first_channel + j - columns) ? -kElement : kElement;
        }
      });
  for (int stride = 1; stride < kDim; stride *= 2) {
    team.run(
        kDim / 2 * columns, [&](int task) __attribute__((always_inline)) {
          const int pair = task / columns;
          const int low = pair / stride * 2 * stride + pair % stride;
          float& a = rows[low * width + task % columns];
          float& b = rows[(low + stride) * width + task % columns];
          const float sum = a + b;
          b = a - b;
          a = sum;
        });
  }
  team.run(
      kDim * columns, [&](int task) __attribute__((always_inline)) {
        float& x = rows[task / columns * width + task % columns];
        x = x * kElement;
      });
}

/// Reflects the columns of storage.rows so that its first `columns` columns become a triangle.
template <int kDim, int kChannels, class Team>
[[gnu::always_inline]] OPENVC_HD constexpr void reflect(const Team& team, int columns,
                                                        BasisStorageOf<kDim, kChannels>& storage) {
  constexpr int kWidth = Team::kWidth;
  const int width = columns + kChannels;
  float* rows = storage.rows;
  float* factors = storage.factors;
  for (int i = 0; i < columns; ++i) {
    partial_dots<kDim>(team, rows, i, rows, width, i, i, storage.partials);
    team.run(
        width - i, [&](int task) __attribute__((always_inline)) {
          const int j = i + task;
          const float square = join_partials<kDim>(storage.partials, width, i);
          const float diagonal = rows[i * width + i];
          const float norm = __builtin_sqrtf(square);
          const float image = diagonal < 0.0f ? norm : -norm;  // of the reflected column
          if (j == i) {
            storage.pivot = diagonal - image;
            return;
          }
          const float dot = __builtin_fmaf(-image, rows[i * width + j],
                                           join_partials<kDim>(storage.partials, width, j));
          const float half = __builtin_fmaf(norm, magnitude(diagonal), square);
          factors[j] = square > kMinSquare ? -(dot / half) : 0.0f;
        });
    const int first_block = (i + 1) / kWidth;
    const int blocks = width / kWidth - first_block;
    team.run((kDim - i) * blocks, [&](int task) __attribute__((always_inline)) {
      const int r = i + task / blocks;
      float* row = rows + r * width;
      const float reflector = r == i ? storage.pivot : row[i];
      const int column = (first_block + task % blocks) * kWidth;
      for (int w = 0; w < kWidth; ++w) {
        const int j = column + w;
        row[j] = j > i ? __builtin_fmaf(reflector, factors[j], row[j]) : row[j];
      }
    });
  }
}

/// Leaves kChannels columns of U^T in the last columns of storage.rows: row j there holds the
/// elements of column j of U from `first_channel` on, unrounded.
template <int kDim, int kChannels, class Team>
[[gnu::always_inline]] OPENVC_HD constexpr void orthogonal_basis(
    const Team& team, const AxesView& axes, int first_channel,
    BasisStorageOf<kDim, kChannels>& storage) {
  start_basis(team, axes, first_channel, storage);
  reflect<kDim, kChannels>(team, axes.columns, storage);
}

}  // namespace openvc::numerics
