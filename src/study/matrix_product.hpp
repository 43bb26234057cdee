// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// Sums in float64 over factors that are exact in binary32: decoded codes and attention inputs.
namespace openvc::study {

/// out[i][j] = sum over c of a[i][c] b[j][c].
/// a [rows_a][channels], b [rows_b][channels], out [rows_a][rows_b], all contiguous.
void dot_products(const float* a, std::int64_t rows_a, const float* b, std::int64_t rows_b,
                  std::int64_t channels, double* out);

/// out[i][c] += sum over j of weights[i][j] values[j][c].
/// weights [rows][keys], values [keys][channels], out [rows][channels], all contiguous; channels is
/// a multiple of 32.
void add_weighted_sums(const double* weights, std::int64_t rows, std::int64_t keys,
                       const float* values, std::int64_t channels, double* out);

}  // namespace openvc::study
