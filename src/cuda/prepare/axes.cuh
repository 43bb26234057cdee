// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/block_team.cuh"
#include "cuda/prepare/sample.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "numerics/half.hpp"
#include "numerics/orthogonal_basis.hpp"
#include "numerics/principal_axes.hpp"

// Principal axes of the heads, and the matrices that Q and K are multiplied by: the rules of
// numerics/principal_axes.hpp and orthogonal_basis.hpp, a thread block as the team.
namespace openvc::cuda::prepare {

inline constexpr int kAxesThreads = 512;

/// Elements below the diagonal, which sum_sample_moments() leaves out, from those above.
__device__ __forceinline__ void mirror(numerics::Moments& moments) {
  constexpr int kDim = numerics::kHeadDim;
  for (int i = static_cast<int>(threadIdx.x); i < kDim * kDim; i += kAxesThreads) {
    const int row = i / kDim;
    const int column = i % kDim;
    if (row > column) moments.gram[i] = moments.gram[column * kDim + row];
  }
}

/// Grid (heads), kAxesThreads threads, sizeof(numerics::AxesStorage) bytes of shared memory.
static __global__ void __launch_bounds__(kAxesThreads, 1)
    find_axes(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(16) unsigned char axes_memory[];
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  auto& storage = *reinterpret_cast<numerics::AxesStorage*>(axes_memory);
  const std::int64_t bh = blockIdx.x;
  numerics::Moments& query = a.moments(bh, kSampledQuery);
  numerics::Moments& key = a.moments(bh, kSampledKey);
  mirror(query);
  mirror(key);
  __syncthreads();
  const int columns = a.axes_columns();
  const numerics::AxesTensor query_tensor{query, numerics::sample_size(a.problem.queries), false};
  const numerics::AxesTensor key_tensor{key, numerics::sample_size(a.problem.keys), true};
  numerics::principal_axes<numerics::kHeadDim>(BlockTeam{}, query_tensor, key_tensor, columns,
                                               storage, a.axis_shares(bh));
  float* axes = a.axes(bh);
  for (int i = static_cast<int>(threadIdx.x); i < numerics::kHeadDim * columns; i += kAxesThreads) {
    axes[i] = storage.axes[i];
  }
}

/// Channels of the matrix that one block computes.
inline constexpr int kBasisChannels = 16;
inline constexpr int kBasisBlocks = numerics::kHeadDim / kBasisChannels;
inline constexpr int kBasisThreads = 256;

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

/// Blocks per head: kBasisBlocks. Two terms, [term][column][channel], for inputs of 16 bits;
/// binary32, [channel][column], for those of 32.
template <ElementType kType>
__global__ void __launch_bounds__(kBasisThreads) write_basis(const __grid_constant__ Arguments a) {
  __shared__ numerics::BasisStorageOf<numerics::kHeadDim, kBasisChannels> storage;
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const HeadBlock block(kBasisBlocks);
  const numerics::ScorePlan& plan = a.plan(block.bh).scores;
  if (plan.axes == 0) return;
  const int first_channel = static_cast<int>(block.index) * kBasisChannels;
  const int columns = plan.extra_steps * numerics::kResidualChannelsPerStep;
  numerics::orthogonal_basis(BlockTeam{},
                             numerics::AxesView{a.axes(block.bh), a.axes_columns(), columns},
                             first_channel, storage);
  const int width = columns + kBasisChannels;
  constexpr int kDim = numerics::kHeadDim;
  for (int i = static_cast<int>(threadIdx.x); i < kDim * kBasisChannels; i += kBasisThreads) {
    const int column = i / kBasisChannels;
    const int channel = i % kBasisChannels;
    const float x = numerics::round_basis(storage.rows[column * width + columns + channel]);
    if constexpr (kType == ElementType::float32) {
      a.basis<float>(block.bh)[(first_channel + channel) * kDim + column] = x;
    } else {
      const InputTerms<kType> terms(x);
      std::uint16_t* basis = a.basis<std::uint16_t>(block.bh);
      const int place = column * kDim + first_channel + channel;
      basis[place] = terms.high;
      basis[kDim * kDim + place] = terms.low;
    }
  }
}

/// Element of the matrix, for inputs of 16 bits.
template <ElementType kType>
__device__ __forceinline__ float basis_element(const Arguments& a, std::int64_t bh, int channel,
                                               int column) {
  constexpr int kDim = numerics::kHeadDim;
  const std::uint16_t* basis = a.basis<std::uint16_t>(bh) + column * kDim + channel;
  const auto value = [](std::uint16_t bits) {
    return kType == ElementType::float16 ? numerics::half_to_float(bits)
                                         : numerics::bfloat16_to_float(bits);
  };
  return value(basis[0]) + value(basis[kDim * kDim]);
}

/// The means of K times the matrix, which tensor cores need: their operands are the inputs as they
/// are. Grid (heads), kHeadDim threads.
template <ElementType kType>
__global__ void __launch_bounds__(numerics::kHeadDim)
    write_key_offsets(const __grid_constant__ Arguments a) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const std::int64_t bh = blockIdx.x;
  const numerics::HeadPlan& plan = a.plan(bh);
  if (plan.scores.axes == 0) return;
  const auto column = static_cast<int>(threadIdx.x);
  float sum = 0.0f;
  for (int c = 0; c < numerics::kHeadDim; ++c) {
    sum = __fmaf_rn(plan.key_means[c], basis_element<kType>(a, bh, c, column), sum);
  }
  a.key_offsets(bh)[column] = sum;
}

}  // namespace openvc::cuda::prepare
