// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/block_team.cuh"
#include "cuda/prepare/register_columns.cuh"
#include "cuda/prepare/sample.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "numerics/half.hpp"
#include "numerics/orthogonal_basis.hpp"
#include "numerics/principal_axes.hpp"

// Principal axes of the heads, and the matrices that Q and K are multiplied by: the rules of
// numerics/principal_axes.hpp and orthogonal_basis.hpp, a thread block as the team.
namespace openvc::cuda::prepare {

/// Elements below the diagonal, which sum_sample_moments() leaves out, from those above.
__device__ __forceinline__ void mirror(numerics::Moments& moments) {
  constexpr int kDim = numerics::kHeadDim;
  for (int i = static_cast<int>(threadIdx.x); i < kDim * kDim; i += kAxesThreads) {
    const int row = i / kDim;
    const int column = i % kDim;
    if (row > column) moments.gram[i] = moments.gram[column * kDim + row];
  }
}

__device__ __forceinline__ numerics::AxesTensor axes_tensor(const Arguments& a, std::int64_t bh,
                                                            int tensor) {
  const std::int64_t tokens = tensor == kSampledQuery ? a.problem.queries : a.problem.keys;
  return {a.moments(bh, tensor), numerics::sample_size(tokens),
          tensor == kSampledKey || (tensor == kSampledValue && a.numerics.smooth_values)};
}

/// Blocks per head: kHeadParts, kAxesThreads threads each, sizeof(numerics::AxesStorage) bytes of
/// shared memory.
static __global__ void __launch_bounds__(kAxesThreads, 1)
    find_axes(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(16) unsigned char axes_memory[];
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  auto& storage = *reinterpret_cast<numerics::AxesStorage*>(axes_memory);
  const HeadBlock block(kHeadParts);
  const auto part = static_cast<int>(block.index);
  const std::int64_t bh = block.bh;
  const bool of_scores = part == kScores;
  if (!(of_scores ? a.workspace_layout.with_axes : a.workspace_layout.with_value_axes)) return;
  if (of_scores) {
    mirror(a.moments(bh, kSampledQuery));
    mirror(a.moments(bh, kSampledKey));
  } else {
    mirror(a.moments(bh, kSampledValue));
  }
  __syncthreads();
  const int columns = of_scores ? a.axes_columns() : numerics::kValueAxes;
  if (of_scores) {
    numerics::principal_axes<numerics::kHeadDim>(BlockTeam{}, axes_tensor(a, bh, kSampledQuery),
                                                 axes_tensor(a, bh, kSampledKey), columns, storage,
                                                 a.axis_shares(bh));
  } else {
    numerics::value_axes<numerics::kHeadDim>(BlockTeam{}, axes_tensor(a, bh, kSampledValue),
                                             storage, a.value_axes(bh));
  }
  float* axes = a.axes(part, bh);
  for (int i = static_cast<int>(threadIdx.x); i < numerics::kHeadDim * columns; i += kAxesThreads) {
    axes[i] = storage.axes[i];
  }
}

/// Channels of the matrix that one block computes.
inline constexpr int kBasisChannels = 16;
inline constexpr int kBasisBlocks = numerics::kHeadDim / kBasisChannels;

/// An element of the matrix as two terms of the inputs' type, whose sum is exact.
template <ElementType kType>
struct InputTerms {
  std::uint16_t high;
  std::uint16_t low;

  __device__ explicit InputTerms(float x) {
    if constexpr (kType == ElementType::float16) {
      high = numerics::float_to_half(x);
      low = numerics::float_to_half(x - numerics::half_to_float(high));
    } else {
      high = numerics::float_to_bfloat16(x);
      low = numerics::float_to_bfloat16(x - numerics::bfloat16_to_float(high));
    }
  }
};

/// Whether a part of a head is on axes.
__device__ __forceinline__ bool is_on_axes(const Arguments& a, std::int64_t bh, int part) {
  if (part == kScores) return a.workspace_layout.with_axes && a.plan(bh).scores.axes != 0;
  return a.workspace_layout.with_value_axes && a.plan(bh).values_on_axes != 0;
}

/// Blocks per head: kHeadParts * kBasisBlocks. Two terms, [term][column][channel], for inputs of 16
/// bits; binary32, [channel][column], for those of 32. That of V goes to the block as well.
template <ElementType kType>
__global__ void __launch_bounds__(kBasisThreads) write_basis(const __grid_constant__ Arguments a) {
  __shared__ numerics::BasisStorageOf<numerics::kHeadDim, kBasisChannels> storage;
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
  numerics::orthogonal_basis(BlockTeam{}, numerics::AxesView{a.axes(part, bh), stride, columns},
                             first_channel, storage);
  const int width = columns + kBasisChannels;
  constexpr int kDim = numerics::kHeadDim;
  for (int i = static_cast<int>(threadIdx.x); i < kDim * kBasisChannels; i += kBasisThreads) {
    const int column = i / kBasisChannels;
    const int channel = i % kBasisChannels;
    const float x = numerics::round_basis(storage.rows[column * width + columns + channel]);
    const int place = column * kDim + first_channel + channel;
    if constexpr (kType == ElementType::float32) {
      a.basis<float>(part, bh)[(first_channel + channel) * kDim + column] = x;
    } else {
      const InputTerms<kType> terms(x);
      std::uint16_t* basis = a.basis<std::uint16_t>(part, bh);
      basis[place] = terms.high;
      basis[kDim * kDim + place] = terms.low;
    }
    if (of_scores) continue;
    const numerics::BasisTerms terms = numerics::basis_terms(x);
    a.packed_value_basis(bh)[place] = terms.high;
    a.packed_value_basis(bh)[kDim * kDim + place] = terms.low;
  }
  // finish_statistics() decides about V beside the block that writes the rule.
  if (!of_scores && first_channel == 0 && threadIdx.x == 0) {
    a.head_rule(bh).flags |= numerics::HeadRule::kValuesOnAxes;
  }
}

/// Element of the matrix, for inputs of 16 bits.
template <ElementType kType>
__device__ __forceinline__ float basis_element(const std::uint16_t* basis, int channel,
                                               int column) {
  constexpr int kDim = numerics::kHeadDim;
  const std::uint16_t* terms = basis + column * kDim + channel;
  const auto value = [](std::uint16_t bits) {
    return kType == ElementType::float16 ? numerics::half_to_float(bits)
                                         : numerics::bfloat16_to_float(bits);
  };
  return value(terms[0]) + value(terms[kDim * kDim]);
}

/// The means of K, or of V, times the matrix, which tensor cores need: their operands are the
/// inputs as they are. Blocks per head: kHeadParts, kHeadDim threads each.
template <ElementType kType>
__global__ void __launch_bounds__(numerics::kHeadDim)
    write_offsets(const __grid_constant__ Arguments a) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const HeadBlock block(kHeadParts);
  const auto part = static_cast<int>(block.index);
  if (!is_on_axes(a, block.bh, part)) return;
  const numerics::HeadPlan& plan = a.plan(block.bh);
  const float* means = part == kScores ? plan.key_means : plan.value_means;
  const std::uint16_t* basis = a.basis<std::uint16_t>(part, block.bh);
  const auto column = static_cast<int>(threadIdx.x);
  float sum = 0.0f;
#pragma unroll 32  // loads that are on their way together: nothing else runs here
  for (int c = 0; c < numerics::kHeadDim; ++c) {
    sum = __fmaf_rn(means[c], basis_element<kType>(basis, c, column), sum);
  }
  a.offsets(part, block.bh)[column] = sum;
}

}  // namespace openvc::cuda::prepare
