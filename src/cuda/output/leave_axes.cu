// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/output/leave_axes.hpp"

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/host/device.hpp"
#include "cuda/host/kernel_launch.hpp"
#include "cuda/ptx/cvt.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "numerics/half.hpp"
#include "schedule/mask.hpp"

// A warp takes 16 rows of the output, multiplies them by the basis of their head, which waits in
// shared memory, and writes them back: rows belong to one warp, so this works in place. The basis
// is a sum of two bfloat16 terms, a float16 row as well; the product of the two small ones is left
// out. Sums are binary32.
namespace openvc::cuda::output {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kRowsPerWarp = 16;
constexpr int kRowsPerStep = kWarps * kRowsPerWarp;
constexpr int kDim = numerics::kHeadDim;
constexpr int kStepDepth = 16;  // axes of one product
constexpr int kSteps = kDim / kStepDepth;
constexpr int kChannelGroups = kDim / 8;
/// Rows of the basis in shared memory are 16 bytes longer, so that eight of them lie in all banks.
constexpr int kBasisRow = kDim + 8;
constexpr int kTermElements = kDim * kBasisRow;
constexpr int kSharedBytes = schedule::kBasisTerms * kTermElements * 2;
constexpr int kBlocksPerSm = 2;
static_assert(schedule::kBasisTerms == 2);

struct Arguments {
  schedule::Problem problem;
  const numerics::HeadRule* head_rules;
  const std::uint16_t* value_bases;
  const float* value_means;
  std::uint16_t* output;
  std::int64_t batch_stride;  // elements
  std::int64_t row_stride;
  std::int64_t head_stride;
  int blocks_per_head;
};

/// Two neighbouring elements, of which a row may start anywhere if !kPairs.
template <bool kPairs>
__device__ __forceinline__ std::uint32_t load_pair(const std::uint16_t* source) {
  if constexpr (kPairs) return *reinterpret_cast<const std::uint32_t*>(source);
  return source[0] | static_cast<std::uint32_t>(source[1]) << 16;
}

template <bool kPairs>
__device__ __forceinline__ void store_pair(std::uint16_t* target, std::uint32_t pair) {
  if constexpr (kPairs) {
    *reinterpret_cast<std::uint32_t*>(target) = pair;
  } else {
    target[0] = static_cast<std::uint16_t>(pair);
    target[1] = static_cast<std::uint16_t>(pair >> 16);
  }
}

/// A pair of the output as bfloat16 terms: itself, or rounded and what that left.
template <bool kFloat16>
struct Terms {
  std::uint32_t high;
  std::uint32_t low = 0;

  __device__ explicit Terms(std::uint32_t pair) : high(pair) {
    if constexpr (kFloat16) {
      const float a = ptx::cvt_f32_f16_low(pair);
      const float b = ptx::cvt_f32_f16_high(pair);
      high = ptx::cvt_rn_satfinite_bf16x2(a, b);
      low = ptx::cvt_rn_satfinite_bf16x2(a - __uint_as_float(high << 16),
                                         b - __uint_as_float(high & 0xFFFF'0000u));
    }
  }
};

__device__ __forceinline__ void load_basis(const std::uint16_t* source, std::uint16_t* shared) {
  constexpr int kUnit = 8;  // elements of 16 bytes
  constexpr int kUnits = schedule::kBasisTerms * kDim * kDim / kUnit;
  for (int i = static_cast<int>(threadIdx.x); i < kUnits; i += kThreads) {
    const int row = i / (kDim / kUnit);  // of both terms
    *reinterpret_cast<uint4*>(shared + row * kBasisRow + i % (kDim / kUnit) * kUnit) =
        reinterpret_cast<const uint4*>(source)[i];
  }
}

/// Grid (heads * blocks_per_head), kThreads threads.
template <bool kFloat16, bool kPairs>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    leave_axes_kernel(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(16) std::uint16_t basis[];
  ptx::griddepcontrol_wait();
  const std::int64_t bh = blockIdx.x / static_cast<unsigned>(a.blocks_per_head);
  if (!a.head_rules[bh].values_on_axes()) return;
  load_basis(a.value_bases + bh * schedule::kBasisTerms * kDim * kDim, basis);
  __syncthreads();

  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int group = lane / 4;
  const int pair = 2 * (lane % 4);
  std::uint16_t* head =
      a.output + bh / a.problem.heads * a.batch_stride + bh % a.problem.heads * a.head_stride;
  const float* means = a.value_means + bh * kDim + pair;
  // Matrices of a load: axes 0..7 and 8..15 of channels 0..7, then of channels 8..15.
  const std::uint32_t first_row =
      ptx::shared_address(basis) + 2u * ((lane % 16) * kBasisRow + (lane / 16) * 8);
  const std::int64_t stride = std::int64_t{a.blocks_per_head} * kRowsPerStep;
  for (std::int64_t tile =
           blockIdx.x % static_cast<unsigned>(a.blocks_per_head) * std::int64_t{kRowsPerStep} +
           warp * kRowsPerWarp;
       tile < a.problem.queries; tile += stride) {
    const std::int64_t rows[2] = {tile + group, tile + group + 8};
    // Rows without keys are zero and stay it.
    const bool exists[2] = {
        rows[0] < a.problem.queries && schedule::visible_keys(a.problem, rows[0]) > 0,
        rows[1] < a.problem.queries && schedule::visible_keys(a.problem, rows[1]) > 0};
    std::uint32_t input[kSteps][4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int half = i % 2;
        input[step][i] = exists[half] ? load_pair<kPairs>(head + rows[half] * a.row_stride +
                                                          step * kStepDepth + pair + 8 * (i / 2))
                                      : 0u;
      }
    }
    float sums[kChannelGroups][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      std::uint32_t high[4];
      std::uint32_t low[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Terms<kFloat16> terms(input[step][i]);
        high[i] = terms.high;
        low[i] = terms.low;
      }
#pragma unroll
      for (int group_pair = 0; group_pair < kChannelGroups / 2; ++group_pair) {
        const std::uint32_t address =
            first_row + 2u * (step * kStepDepth * kBasisRow + group_pair * 16);
        std::uint32_t coarse[4];
        std::uint32_t fine[4];
        ptx::ldmatrix_x4_trans(coarse, address);
        ptx::ldmatrix_x4_trans(fine, address + 2u * kTermElements);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float(&sum)[4] = sums[2 * group_pair + i];
          ptx::mma_m16n8k16_bf16(sum, high, fine[2 * i], fine[2 * i + 1]);
          if constexpr (kFloat16) {
            ptx::mma_m16n8k16_bf16(sum, low, coarse[2 * i], coarse[2 * i + 1]);
          }
          ptx::mma_m16n8k16_bf16(sum, high, coarse[2 * i], coarse[2 * i + 1]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kChannelGroups; ++i) {
      const float mean_low = means[8 * i];
      const float mean_high = means[8 * i + 1];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (!exists[half]) continue;
        const float low = sums[i][2 * half] + mean_low;
        const float high = sums[i][2 * half + 1] + mean_high;
        store_pair<kPairs>(head + rows[half] * a.row_stride + 8 * i + pair,
                           kFloat16 ? ptx::cvt_rn_satfinite_f16x2(low, high)
                                    : ptx::cvt_rn_satfinite_bf16x2(low, high));
      }
    }
  }
}

using Kernel = void (*)(Arguments);

Kernel choose_kernel(ElementType type, bool pairs) {
  if (type == ElementType::float16) {
    return pairs ? leave_axes_kernel<true, true> : leave_axes_kernel<true, false>;
  }
  return pairs ? leave_axes_kernel<false, true> : leave_axes_kernel<false, false>;
}

bool rows_hold_pairs(const Arguments& a) {
  return reinterpret_cast<std::uintptr_t>(a.output) % 4 == 0 && a.batch_stride % 2 == 0 &&
         a.row_stride % 2 == 0 && a.head_stride % 2 == 0;
}

}  // namespace

void leave_axes(const schedule::PreparedView& inputs, const MutableTensorView& out, void* stream) {
  if (!inputs.with_value_axes) return;
  const schedule::PreparedLayout& layout = inputs.layout;
  const DeviceInfo& device = device_info(out.device.index);
  Arguments a{};
  a.problem = inputs.problem;
  a.head_rules = reinterpret_cast<const numerics::HeadRule*>(inputs.data + layout.head_rules);
  a.value_bases = reinterpret_cast<const std::uint16_t*>(inputs.data + layout.value_bases);
  a.value_means = reinterpret_cast<const float*>(inputs.data + layout.value_means);
  a.output = static_cast<std::uint16_t*>(out.data);
  a.batch_stride = out.shape[kBatch] > 1 ? out.strides[kBatch] : 0;
  a.row_stride = out.shape[kSequence] > 1 ? out.strides[kSequence] : 0;
  a.head_stride = out.shape[kHead] > 1 ? out.strides[kHead] : 0;
  const std::int64_t heads = a.problem.batch_heads();
  const std::int64_t tiles = numerics::ceil_div(a.problem.queries, kRowsPerStep);
  const std::int64_t share =
      numerics::ceil_div(std::int64_t{kBlocksPerSm} * device.multiprocessors, heads);
  a.blocks_per_head = static_cast<int>(tiles < share ? tiles : share);

  const DeviceGuard guard(device.ordinal);
  const Kernel kernel = choose_kernel(out.type, rows_hold_pairs(a));
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
        "asking for shared memory");
  const LaunchShape shape{heads * a.blocks_per_head, kThreads, kSharedBytes};
  launch_kernel(kernel, shape, LaunchOrder::overlaps_previous, static_cast<cudaStream_t>(stream),
                a);
}

}  // namespace openvc::cuda::output
