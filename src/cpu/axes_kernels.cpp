// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/axes_kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "numerics/team.hpp"

// Highway includes this file again for every instruction set that it dispatches to.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/axes_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace openvc::cpu::HWY_NAMESPACE {

using numerics::kHeadDim;

HWY_ATTR void moment_scales(const float* rows, int count, bool centred,
                            numerics::Moments& moments) {
  float max[kHeadDim];
  float min[kHeadDim];
  std::fill_n(max, kHeadDim, -numerics::infinity());
  std::fill_n(min, kHeadDim, numerics::infinity());
  for (int i = 0; i < count; ++i) {
    const float* row = rows + static_cast<std::ptrdiff_t>(i) * kHeadDim;
    for (int c = 0; c < kHeadDim; ++c) {
      max[c] = row[c] > max[c] ? row[c] : max[c];
      min[c] = row[c] < min[c] ? row[c] : min[c];
    }
  }
  for (int c = 0; c < kHeadDim; ++c) {
    moments.scales[c] = numerics::moment_scale(min[c], max[c], centred);
  }
}

HWY_ATTR void sample_moments(const float* rows, int count, bool centred,
                             numerics::Moments& moments) {
  moment_scales(rows, count, centred, moments);
  std::fill_n(moments.sums, kHeadDim, 0);
  std::fill_n(moments.gram, kHeadDim * kHeadDim, 0);
  constexpr int kRows = 4;  // of codes that are multiplied together
  for (int first = 0; first < count; first += kRows) {
    std::int32_t codes[kRows][kHeadDim] = {};
    for (int r = 0; r < kRows && first + r < count; ++r) {
      const float* row = rows + static_cast<std::ptrdiff_t>(first + r) * kHeadDim;
      for (int c = 0; c < kHeadDim; ++c) {
        const numerics::MomentScale& scale = moments.scales[c];
        codes[r][c] = numerics::moment_code(row[c], scale.centre, scale.multiplier());
        moments.sums[c] += codes[r][c];
      }
    }
    for (int i = 0; i < kHeadDim; ++i) {
      std::int32_t* gram = moments.gram + i * kHeadDim;
      for (int j = 0; j < kHeadDim; ++j) {
        gram[j] += codes[0][i] * codes[0][j] + codes[1][i] * codes[1][j] +
                   codes[2][i] * codes[2][j] + codes[3][i] * codes[3][j];
      }
    }
  }
}

HWY_ATTR void principal_axes(const numerics::AxesTensor& query, const numerics::AxesTensor& key,
                             int columns, numerics::AxesStorage& storage,
                             numerics::AxisShares& shares) {
  numerics::principal_axes<kHeadDim>(numerics::SerialTeam{}, query, key, columns, storage, shares);
}

using ValueTeam = numerics::SerialTeamOf<numerics::kValueAxes>;

HWY_ATTR void value_axes(const numerics::AxesTensor& tensor, numerics::AxesStorage& storage,
                         numerics::ValueAxes& axes) {
  numerics::value_axes<kHeadDim>(ValueTeam{}, tensor, storage, axes);
}

HWY_ATTR void orthogonal_basis(const numerics::AxesView& axes, numerics::BasisStorage& storage,
                               float* basis) {
  if (axes.columns % numerics::SerialTeam::kWidth == 0) {
    numerics::orthogonal_basis(numerics::SerialTeam{}, axes, 0, storage);
  } else {
    numerics::orthogonal_basis(ValueTeam{}, axes, 0, storage);
  }
  const int columns = axes.columns;
  const int width = columns + kHeadDim;
  for (int c = 0; c < kHeadDim; ++c) {
    for (int j = 0; j < kHeadDim; ++j) {
      basis[c * kHeadDim + j] =
          numerics::round_basis(storage.rows[j * width + columns + c], j < columns);
    }
  }
}

template <int kRows>
HWY_ATTR HWY_INLINE void multiply_row_group(float* rows, const float* matrix) {
  constexpr int kWidth = 32;
  float result[kRows][kHeadDim];
  for (int first = 0; first < kHeadDim; first += kWidth) {
    float sums[kRows][kWidth] = {};
    for (int c = 0; c < kHeadDim; ++c) {
      const float* u = matrix + c * kHeadDim + first;
      for (int r = 0; r < kRows; ++r) {
        const float x = rows[r * kHeadDim + c];
        for (int w = 0; w < kWidth; ++w) sums[r][w] = __builtin_fmaf(x, u[w], sums[r][w]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int w = 0; w < kWidth; ++w) result[r][first + w] = sums[r][w];
    }
  }
  std::copy_n(result[0], kRows * kHeadDim, rows);
}

HWY_ATTR void multiply_rows(float* rows, int count, const float* matrix) {
  constexpr int kRows = 2;
  int i = 0;
  for (; i + kRows <= count; i += kRows) {
    multiply_row_group<kRows>(rows + i * kHeadDim, matrix);
  }
  for (; i < count; ++i) multiply_row_group<1>(rows + i * kHeadDim, matrix);
}

}  // namespace openvc::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace openvc::cpu {

HWY_EXPORT(sample_moments);
HWY_EXPORT(principal_axes);
HWY_EXPORT(value_axes);
HWY_EXPORT(orthogonal_basis);
HWY_EXPORT(multiply_rows);

void sample_moments(const float* rows, int count, bool centred, numerics::Moments& moments) {
  HWY_DYNAMIC_DISPATCH(sample_moments)(rows, count, centred, moments);
}

void principal_axes(const numerics::AxesTensor& query, const numerics::AxesTensor& key, int columns,
                    numerics::AxesStorage& storage, numerics::AxisShares& shares) {
  HWY_DYNAMIC_DISPATCH(principal_axes)(query, key, columns, storage, shares);
}

void value_axes(const numerics::AxesTensor& tensor, numerics::AxesStorage& storage,
                numerics::ValueAxes& axes) {
  HWY_DYNAMIC_DISPATCH(value_axes)(tensor, storage, axes);
}

void orthogonal_basis(const numerics::AxesView& axes, numerics::BasisStorage& storage,
                      float* basis) {
  HWY_DYNAMIC_DISPATCH(orthogonal_basis)(axes, storage, basis);
}

void multiply_rows(float* rows, int count, const float* matrix) {
  HWY_DYNAMIC_DISPATCH(multiply_rows)(rows, count, matrix);
}

}  // namespace openvc::cpu
#endif  // HWY_ONCE
