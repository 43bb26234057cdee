// SPDX-License-Identifier: BSD-3-Clause
#include "study/matrix_product.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "study/matrix_product.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// Must come after foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace openvc::study {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Tiles of four rows by two vectors keep eight sums in registers on every target.
constexpr std::int64_t kTileRows = 4;
constexpr std::size_t kTileVectors = 2;

/// Keys whose values stay in a first- or second-level cache while all rows use them.
constexpr std::int64_t kKeysPerPass = 256;

using Wide = hn::ScalableTag<double>;
using Narrow = hn::Rebind<float, Wide>;

HWY_INLINE hn::Vec<Wide> load_wide(const float* source) {
  return hn::PromoteTo(Wide(), hn::LoadU(Narrow(), source));
}

/// `panel` holds `count` rows of b transposed: [channels][2 vectors], zero beyond `count`.
template <std::int64_t kRows>
HWY_INLINE void multiply_panel(const float* a, const float* panel, std::int64_t channels,
                               std::int64_t count, std::int64_t out_stride, double* out) {
  const Wide d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Wide> sums[kRows][kTileVectors];
  for (auto& row : sums) {
    for (auto& sum : row) sum = hn::Zero(d);
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    const float* column = panel + c * static_cast<std::int64_t>(kTileVectors * lanes);
    const auto b0 = load_wide(column);
    const auto b1 = load_wide(column + lanes);
    for (std::int64_t r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, static_cast<double>(a[r * channels + c]));
      sums[r][0] = hn::MulAdd(factor, b0, sums[r][0]);
      sums[r][1] = hn::MulAdd(factor, b1, sums[r][1]);
    }
  }
  HWY_ALIGN double row[kTileVectors * HWY_MAX_BYTES / sizeof(double)];
  for (std::int64_t r = 0; r < kRows; ++r) {
    hn::StoreU(sums[r][0], d, row);
    hn::StoreU(sums[r][1], d, row + lanes);
    std::copy_n(row, count, out + r * out_stride);
  }
}

void dot_products(const float* a, std::int64_t rows_a, const float* b, std::int64_t rows_b,
                  std::int64_t channels, double* out) {
  const auto width = static_cast<std::int64_t>(kTileVectors * hn::Lanes(Wide()));
  std::vector<float> panel(static_cast<std::size_t>(channels * width));
  for (std::int64_t first = 0; first < rows_b; first += width) {
    const std::int64_t count = std::min(width, rows_b - first);
    if (count < width) std::ranges::fill(panel, 0.0f);
    for (std::int64_t j = 0; j < count; ++j) {
      const float* source = b + (first + j) * channels;
      for (std::int64_t c = 0; c < channels; ++c) {
        panel[static_cast<std::size_t>(c * width + j)] = source[c];
      }
    }
    std::int64_t i = 0;
    for (; i + kTileRows <= rows_a; i += kTileRows) {
      multiply_panel<kTileRows>(a + i * channels, panel.data(), channels, count, rows_b,
                                out + i * rows_b + first);
    }
    for (; i < rows_a; ++i) {
      multiply_panel<1>(a + i * channels, panel.data(), channels, count, rows_b,
                        out + i * rows_b + first);
    }
  }
}

template <std::int64_t kRows>
HWY_INLINE void add_tile(const double* weights, std::int64_t weight_stride, std::int64_t keys,
                         const float* values, std::int64_t channels, double* out) {
  const Wide d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Wide> sums[kRows][kTileVectors];
  for (std::int64_t r = 0; r < kRows; ++r) {
    sums[r][0] = hn::LoadU(d, out + r * channels);
    sums[r][1] = hn::LoadU(d, out + r * channels + lanes);
  }
  for (std::int64_t j = 0; j < keys; ++j) {
    const auto v0 = load_wide(values + j * channels);
    const auto v1 = load_wide(values + j * channels + lanes);
    for (std::int64_t r = 0; r < kRows; ++r) {
      const auto weight = hn::Set(d, weights[r * weight_stride + j]);
      sums[r][0] = hn::MulAdd(weight, v0, sums[r][0]);
      sums[r][1] = hn::MulAdd(weight, v1, sums[r][1]);
    }
  }
  for (std::int64_t r = 0; r < kRows; ++r) {
    hn::StoreU(sums[r][0], d, out + r * channels);
    hn::StoreU(sums[r][1], d, out + r * channels + lanes);
  }
}

void add_weighted_sums(const double* weights, std::int64_t rows, std::int64_t keys,
                       const float* values, std::int64_t channels, double* out) {
  const auto width = static_cast<std::int64_t>(kTileVectors * hn::Lanes(Wide()));
  for (std::int64_t first = 0; first < keys; first += kKeysPerPass) {
    const std::int64_t count = std::min(kKeysPerPass, keys - first);
    for (std::int64_t c = 0; c < channels; c += width) {
      const float* source = values + first * channels + c;
      std::int64_t i = 0;
      for (; i + kTileRows <= rows; i += kTileRows) {
        add_tile<kTileRows>(weights + i * keys + first, keys, count, source, channels,
                            out + i * channels + c);
      }
      for (; i < rows; ++i) {
        add_tile<1>(weights + i * keys + first, keys, count, source, channels,
                    out + i * channels + c);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace openvc::study
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace openvc::study {

HWY_EXPORT(dot_products);
HWY_EXPORT(add_weighted_sums);

void dot_products(const float* a, std::int64_t rows_a, const float* b, std::int64_t rows_b,
                  std::int64_t channels, double* out) {
  HWY_DYNAMIC_DISPATCH(dot_products)(a, rows_a, b, rows_b, channels, out);
}

void add_weighted_sums(const double* weights, std::int64_t rows, std::int64_t keys,
                       const float* values, std::int64_t channels, double* out) {
  HWY_DYNAMIC_DISPATCH(add_weighted_sums)(weights, rows, keys, values, channels, out);
}

}  // namespace openvc::study
#endif
