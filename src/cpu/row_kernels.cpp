// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/row_kernels.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "cpu/e4m3_lanes.hpp"
#include "numerics/canonical_sum.hpp"
#include "numerics/contract.hpp"
#include "numerics/key_permutation.hpp"

// Highway includes this file again for every instruction set that it dispatches to.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/row_kernels.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace openvc::cpu::HWY_NAMESPACE {

// Plain loops over channels, which the compiler vectorises for the target. They are not written
// with Highway's vectors because those have no fused multiply-add on targets that lack the
// instruction, and a product rounded twice is another number.
using numerics::kHeadDim;
using numerics::kReductionGroup;
using numerics::kReductionLanes;

// Adds row i to lane i mod kReductionLanes with `add`, then the lanes as a balanced binary tree.
template <class Add>
HWY_ATTR void sum_lanes(const float* rows, int count, float* sums, const Add& add) {
  float lanes[kReductionLanes][kHeadDim] = {};
  for (int i = 0; i < count; ++i) {
    const float* row = rows + static_cast<std::int64_t>(i) * kHeadDim;
    float* lane = lanes[i % kReductionLanes];
    for (int c = 0; c < kHeadDim; ++c) lane[c] = add(lane[c], row[c]);
  }
  for (int stride = 1; stride < kReductionLanes; stride *= 2) {
    for (int i = 0; i < kReductionLanes; i += 2 * stride) {
      for (int c = 0; c < kHeadDim; ++c) lanes[i][c] += lanes[i + stride][c];
    }
  }
  std::copy_n(lanes[0], kHeadDim, sums);
}

HWY_ATTR void sum_rows(const float* rows, int count, float* sums) {
  sum_lanes(rows, count, sums, [](float sum, float x) HWY_ATTR { return sum + x; });
}

HWY_ATTR void sum_squared_rows(const float* rows, int count, float* squares) {
  sum_lanes(rows, count, squares,
            [](float sum, float x) HWY_ATTR { return __builtin_fmaf(x, x, sum); });
}

// numerics::row_dot with its chunks as independent chains instead of an array in memory.
HWY_ATTR float row_dot(const float* left, const float* right) {
  constexpr int kChunks = kHeadDim / numerics::kRowChunk;
  float chunks[kChunks];
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    float sum = 0.0f;
    for (int i = 0; i < numerics::kRowChunk; ++i) {
      const int c = chunk * numerics::kRowChunk + i;
      sum = __builtin_fmaf(left[c], right[c], sum);
    }
    chunks[chunk] = sum;
  }
  return numerics::sum_balanced(chunks, kChunks);
}

HWY_ATTR std::uint32_t largest_magnitude_bits(const float* rows, int count) {
  std::uint32_t magnitudes[kHeadDim] = {};
  for (int i = 0; i < count; ++i) {
    const float* row = rows + static_cast<std::int64_t>(i) * kHeadDim;
    for (int c = 0; c < kHeadDim; ++c) {
      magnitudes[c] = std::max(magnitudes[c], numerics::magnitude_bits(row[c]));
    }
  }
  return *std::max_element(magnitudes, magnitudes + kHeadDim);
}

HWY_ATTR float largest_row_sum_squares(const float* rows, int count) {
  float largest = 0.0f;
  for (int i = 0; i < count; ++i) {
    const float* row = rows + static_cast<std::int64_t>(i) * kHeadDim;
    largest = std::max(largest, row_dot(row, row));
  }
  return largest;
}

HWY_ATTR void reduce_rows(float* rows, std::int64_t count) {
  while (count > 1) {
    const std::int64_t groups = numerics::ceil_div(count, kReductionGroup);
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t first = g * kReductionGroup;
      const auto size = static_cast<int>(std::min<std::int64_t>(count - first, kReductionGroup));
      sum_rows(rows + first * kHeadDim, size, rows + g * kHeadDim);
    }
    count = groups;
  }
}

HWY_ATTR void extend_range(const float* rows, int count, float* max, float* min) {
  for (int i = 0; i < count; ++i) {
    const float* row = rows + static_cast<std::int64_t>(i) * kHeadDim;
    for (int c = 0; c < kHeadDim; ++c) {
      max[c] = row[c] > max[c] ? row[c] : max[c];
      min[c] = row[c] < min[c] ? row[c] : min[c];
    }
  }
}

HWY_ATTR void subtract_from_rows(float* rows, int count, const float* means) {
  for (int i = 0; i < count; ++i) {
    float* row = rows + static_cast<std::int64_t>(i) * kHeadDim;
    for (int c = 0; c < kHeadDim; ++c) row[c] -= means[c];
  }
}

// numerics::hadamard with the strides 1 and 2 in one step, which leaves no loop that is too short
// to vectorise.
HWY_ATTR void hadamard(float* row) {
  for (int i = 0; i < kHeadDim; i += 4) {
    const float sum_low = row[i] + row[i + 1];
    const float difference_low = row[i] - row[i + 1];
    const float sum_high = row[i + 2] + row[i + 3];
    const float difference_high = row[i + 2] - row[i + 3];
    row[i] = sum_low + sum_high;
    row[i + 1] = difference_low + difference_high;
    row[i + 2] = sum_low - sum_high;
    row[i + 3] = difference_low - difference_high;
  }
  for (int stride = 4; stride < kHeadDim; stride *= 2) {
    for (int block = 0; block < kHeadDim; block += 2 * stride) {
      float* low = row + block;
      float* high = low + stride;
      for (int i = 0; i < stride; ++i) {
        const float a = low[i];
        const float b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
  }
}

HWY_ATTR void rotate_rows(float* rows, int count, float scale) {
  for (int i = 0; i < count; ++i) {
    float* row = rows + static_cast<std::int64_t>(i) * kHeadDim;
    hadamard(row);
    for (int c = 0; c < kHeadDim; ++c) row[c] *= scale;
  }
}

HWY_ATTR void encode_rows(const float* rows, int count, const float* multipliers,
                          std::uint8_t* codes) {
  for (int i = 0; i < count; ++i) {
    const std::int64_t first = static_cast<std::int64_t>(i) * kHeadDim;
    for (int c = 0; c < kHeadDim; ++c) {
      codes[first + c] =
          static_cast<std::uint8_t>(encode_e4m3_lane(rows[first + c] * multipliers[c]));
    }
  }
}

HWY_ATTR void residual_rows(const float* rows, int count, const float* multipliers,
                            const std::uint8_t* codes, float* residuals) {
  for (int i = 0; i < count; ++i) {
    const std::int64_t first = static_cast<std::int64_t>(i) * kHeadDim;
    for (int c = 0; c < kHeadDim; ++c) {
      residuals[first + c] = rows[first + c] * multipliers[c] - decode_e4m3_lane(codes[first + c]);
    }
  }
}

HWY_ATTR void weighted_row_energies(const float* rows, int count, const float* scales,
                                    float* energies) {
  for (int i = 0; i < count; ++i) {
    const float* row = rows + static_cast<std::int64_t>(i) * kHeadDim;
    float weighted[kHeadDim];
    for (int c = 0; c < kHeadDim; ++c) weighted[c] = row[c] * scales[c];
    energies[i] = row_dot(weighted, weighted);
  }
}

HWY_ATTR void pack_value_codes(const std::uint8_t* codes, std::uint8_t* packed) {
  for (int c = 0; c < kHeadDim; ++c) {
    std::uint8_t* channel = packed + c * numerics::kKeyBlock;
    for (int key = 0; key < numerics::kKeyBlock; ++key) {
      channel[numerics::slot_of_key(key)] = codes[key * kHeadDim + c];
    }
  }
}

HWY_ATTR const char* simd_target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace openvc::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace openvc::cpu {

HWY_EXPORT(largest_magnitude_bits);
HWY_EXPORT(largest_row_sum_squares);
HWY_EXPORT(row_dot);
HWY_EXPORT(sum_rows);
HWY_EXPORT(sum_squared_rows);
HWY_EXPORT(reduce_rows);
HWY_EXPORT(extend_range);
HWY_EXPORT(subtract_from_rows);
HWY_EXPORT(rotate_rows);
HWY_EXPORT(encode_rows);
HWY_EXPORT(residual_rows);
HWY_EXPORT(weighted_row_energies);
HWY_EXPORT(pack_value_codes);
HWY_EXPORT(simd_target);

std::uint32_t largest_magnitude_bits(const float* rows, int count) {
  return HWY_DYNAMIC_DISPATCH(largest_magnitude_bits)(rows, count);
}

float largest_row_sum_squares(const float* rows, int count) {
  return HWY_DYNAMIC_DISPATCH(largest_row_sum_squares)(rows, count);
}

float row_dot(const float* left, const float* right) {
  return HWY_DYNAMIC_DISPATCH(row_dot)(left, right);
}

void sum_rows(const float* rows, int count, float* sums) {
  HWY_DYNAMIC_DISPATCH(sum_rows)(rows, count, sums);
}

void sum_squared_rows(const float* rows, int count, float* squares) {
  HWY_DYNAMIC_DISPATCH(sum_squared_rows)(rows, count, squares);
}

void reduce_rows(float* rows, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(reduce_rows)(rows, count);
}

void extend_range(const float* rows, int count, float* max, float* min) {
  HWY_DYNAMIC_DISPATCH(extend_range)(rows, count, max, min);
}

void subtract_from_rows(float* rows, int count, const float* means) {
  HWY_DYNAMIC_DISPATCH(subtract_from_rows)(rows, count, means);
}

void rotate_rows(float* rows, int count, float scale) {
  HWY_DYNAMIC_DISPATCH(rotate_rows)(rows, count, scale);
}

void encode_rows(const float* rows, int count, const float* multipliers, std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(encode_rows)(rows, count, multipliers, codes);
}

void residual_rows(const float* rows, int count, const float* multipliers,
                   const std::uint8_t* codes, float* residuals) {
  HWY_DYNAMIC_DISPATCH(residual_rows)(rows, count, multipliers, codes, residuals);
}

void weighted_row_energies(const float* rows, int count, const float* scales, float* energies) {
  HWY_DYNAMIC_DISPATCH(weighted_row_energies)(rows, count, scales, energies);
}

void pack_value_codes(const std::uint8_t* codes, std::uint8_t* packed) {
  HWY_DYNAMIC_DISPATCH(pack_value_codes)(codes, packed);
}

const char* simd_target() { return HWY_DYNAMIC_DISPATCH(simd_target)(); }

}  // namespace openvc::cpu
#endif  // HWY_ONCE
