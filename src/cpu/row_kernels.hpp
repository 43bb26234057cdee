// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// The inner loops of the preparation, on tiles of `count` contiguous rows of kHeadDim floats. Each
// is compiled for several instruction sets and chosen at run time; all of them give the same bits,
// because every operation is lane-wise or in the canonical order.
namespace openvc::cpu {

/// max of magnitude_bits(x) and of row_sum_squares(row): the parts of a numerics::Extent.
std::uint32_t largest_magnitude_bits(const float* rows, int count);
float largest_row_sum_squares(const float* rows, int count);

/// numerics::row_dot of two rows.
float row_dot(const float* left, const float* right);

/// Sums of each channel over one canonical group, count <= kReductionGroup.
void sum_rows(const float* rows, int count, float* sums);
void sum_squared_rows(const float* rows, int count, float* squares);

/// Reduces `count` >= 1 rows of partial sums to one, in place, in canonical order. The result is in
/// the first row.
void reduce_rows(float* rows, std::int64_t count);

/// Raises `max` and lowers `min` of each channel.
void extend_range(const float* rows, int count, float* max, float* min);

void subtract_from_rows(float* rows, int count, const float* means);

/// Hadamard transform of each row, times `scale`.
void rotate_rows(float* rows, int count, float scale);

/// codes = E4M3(row * multipliers), lane by lane.
void encode_rows(const float* rows, int count, const float* multipliers, std::uint8_t* codes);

/// Residuals of encode_rows() on the grid of their channel: row * multipliers - decoded code.
void residual_rows(const float* rows, int count, const float* multipliers,
                   const std::uint8_t* codes, float* residuals);

/// Sum over channels of (rows * scales)^2, per row.
void weighted_row_energies(const float* rows, int count, const float* scales, float* energies);

/// Transposes a tile of kKeyBlock rows of codes into the channels of a block of packed V.
void pack_value_codes(const std::uint8_t* codes, std::uint8_t* packed);

/// The instruction set that these loops run with on this machine.
const char* simd_target();

}  // namespace openvc::cpu
