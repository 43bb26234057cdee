// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "numerics/moments.hpp"
#include "numerics/orthogonal_basis.hpp"
#include "numerics/principal_axes.hpp"

// The rules of principal axes, compiled for several instruction sets. The bits are those of the
// rules themselves.
namespace openvc::cpu {

/// Moments of `count` >= 1 rows of kHeadDim floats; `centred` about the middle of each channel.
void sample_moments(const float* rows, int count, bool centred, numerics::Moments& moments);

/// numerics::principal_axes.
void principal_axes(const numerics::AxesTensor& query, const numerics::AxesTensor& key, int columns,
                    numerics::AxesStorage& storage, numerics::AxisShares& shares);

/// numerics::value_axes.
void value_axes(const numerics::AxesTensor& tensor, numerics::AxesStorage& storage,
                numerics::ValueAxes& axes);

/// The rounded matrix of numerics::orthogonal_basis, [channel][column].
void orthogonal_basis(const numerics::AxesView& axes, numerics::BasisStorage& storage,
                      float* basis);

/// rows = rows * matrix, in place; every element a chain of fused multiply-adds over the channels.
/// `matrix` is [channel][column].
void multiply_rows(float* rows, int count, const float* matrix);

}  // namespace openvc::cpu
