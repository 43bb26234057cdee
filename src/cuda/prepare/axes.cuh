// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/axes_tiles.cuh"
#include "cuda/prepare/block_team.cuh"
#include "cuda/prepare/register_columns.cuh"
#include "cuda/prepare/sample.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "numerics/half.hpp"
#include "numerics/orthogonal_basis.hpp"
#include "numerics/principal_axes.hpp"

// Principal axes of the heads, and the matrices that Q and K are multiplied by: the rules of
// numerics/principal_axes.hpp and orthogonal_basis.hpp, a thread block as the team.
namespace openvc::cuda::prepare {

/// Shared memory of find_axes().
struct FindAxesStorage {
  alignas(16) numerics::Moments moments;  // of one tensor after the other
  numerics::AxesStorage axes;
};

__device__ __forceinline__ numerics::AxesTensor axes_tensor(const Arguments& a, std::int64_t bh,
                                                            int tensor) {
  const schedule::Problem problem = a.problem_of(bh);
  const std::int64_t tokens = tensor == kSampledQuery ? problem.queries : problem.keys;
  return {a.moments(bh, tensor), numerics::sample_size(tokens > 0 ? tokens : 1),
          tensor == kSampledKey || (tensor == kSampledValue && a.numerics.smooth_values)};
}

/// Blocks per head: kHeadParts, kAxesThreads threads each, sizeof(FindAxesStorage) bytes of
/// shared memory.
static __global__ void __launch_bounds__(kAxesThreads, 1)
    find_axes(const __grid_constant__ Arguments a) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  auto& shared = ptx::dynamic_shared<FindAxesStorage>();
  numerics::AxesStorage& storage = shared.axes;
  const BlockTeam team{&shared.moments};
  const HeadBlock block(kHeadParts);
  const auto part = static_cast<int>(block.index);
  const std::int64_t bh = block.bh;
  const bool of_scores = part == kScores;
  if (!(of_scores ? a.workspace_layout.with_axes : a.workspace_layout.with_value_axes)) return;
  const int columns = of_scores ? a.axes_columns() : numerics::kValueAxes;
  if (of_scores) {
    numerics::principal_axes<numerics::kHeadDim>(team, axes_tensor(a, bh, kSampledQuery),
                                                 axes_tensor(a, bh, kSampledKey), columns, storage,
                                                 a.axis_shares(bh));
  } else {
    numerics::value_axes<numerics::kHeadDim>(team, axes_tensor(a, bh, kSampledValue), storage,
                                             a.value_axes(bh));
  }
  float* axes = a.axes(part, bh);
  for (int i = static_cast<int>(threadIdx.x); i < numerics::kHeadDim * columns; i += kAxesThreads) {
    axes[i] = storage.axes[i];
  }
}

/// Channels of the matrix that one block computes.
inline constexpr int kBasisChannels = 16;
inline constexpr int kBasisBlocks = numerics::kHeadDim / kBasisChannels;

/// An element of a basis as two numbers of the inputs' type, whose sum is exact.
template <ElementType kType>
__device__ __forceinline__ numerics::BasisTerms input_terms(float x) {
  if constexpr (kType == ElementType::bfloat16) return numerics::basis_terms(x);
  const std::uint16_t high = numerics::float_to_half(x);
  return {high, numerics::float_to_half(x - numerics::half_to_float(high))};
}

/// Blocks per head: kHeadParts * kBasisBlocks. The matrix is [column][channel] in the type of
/// inputs of 16 bits, and behind it the second terms of kMaxAxes columns, which are zero but for
/// axes; binary32, [channel][column], for inputs of 32 bits. That of V goes to the block as well.
template <ElementType kType>
__global__ void __launch_bounds__(kBasisThreads) write_basis(const __grid_constant__ Arguments a) {
  auto& storage =
      ptx::static_shared<numerics::BasisStorageOf<numerics::kHeadDim, kBasisChannels>>();
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const HeadBlock block(kHeadParts * kBasisBlocks);
  const int part = static_cast<int>(block.index) / kBasisBlocks;
  const int first_channel = static_cast<int>(block.index) % kBasisBlocks * kBasisChannels;
  const std::int64_t bh = block.bh;
  if (!is_on_axes(a, bh, part)) return;
  const bool of_scores = part == kScores;
  const int columns = of_scores ? a.plan(bh).scores.extra_steps * numerics::kResidualChannelsPerStep
                                : numerics::kValueAxes;
  const int stride = of_scores ? a.axes_columns() : numerics::kValueAxes;
  orthogonal_basis(BlockTeam{}, numerics::AxesView{a.axes(part, bh), stride, columns},
                   first_channel, storage);
  const int width = columns + kBasisChannels;
  constexpr int kDim = numerics::kHeadDim;
  for (int i = static_cast<int>(threadIdx.x); i < kDim * kBasisChannels; i += kBasisThreads) {
    const int column = i / kBasisChannels;
    const int channel = i % kBasisChannels;
    const float x =
        numerics::round_basis(storage.rows[column * width + columns + channel], column < columns);
    const int by_channel = (first_channel + channel) * kDim + column;
    if constexpr (kType == ElementType::float32) {
      a.basis<float>(part, bh)[by_channel] = x;
    } else {
      const numerics::BasisTerms terms = input_terms<kType>(x);
      std::uint16_t* basis = a.basis<std::uint16_t>(part, bh);
      const int place = column * kDim + first_channel + channel;
      basis[place] = terms.high;
      if (column < numerics::kMaxAxes) basis[kDim * kDim + place] = terms.low;
    }
    if (of_scores) continue;
    const numerics::BasisTerms terms = numerics::basis_terms(x);
    const int row = (first_channel + channel) * a.block_layout.basis_columns();
    a.packed_value_basis(bh)[row + column] = terms.high;
    if (column < numerics::kValueAxes) a.packed_value_basis(bh)[row + kDim + column] = terms.low;
  }
  // finish_statistics() decides about V beside the block that writes the rule.
  if (!of_scores && first_channel == 0 && threadIdx.x == 0) {
    a.head_rule(bh).flags |= numerics::HeadRule::kValuesOnAxes;
  }
}

}  // namespace openvc::cuda::prepare
