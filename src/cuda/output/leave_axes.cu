// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/output/leave_axes.hpp"

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/device/basis_product.cuh"
#include "cuda/host/device.hpp"
#include "cuda/host/kernel_launch.hpp"
#include "cuda/ptx/cvt.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/load.cuh"
#include "numerics/half.hpp"
#include "schedule/mask.hpp"

// A warp takes 16 rows of the output, multiplies them by the basis of their head, which waits in
// shared memory, and writes them back: rows belong to one warp, so this works in place. The next 16
// rows are on their way meanwhile. Elements of the basis are numbers of both output types; sums are
// binary32.
namespace openvc::cuda::output {
namespace {

using device::kThreadUnits;
using device::RowPart;

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * device::kWarpLanes;
constexpr int kRowsPerWarp = 16;
constexpr int kRowsPerStep = kWarps * kRowsPerWarp;
constexpr int kDim = numerics::kHeadDim;
constexpr int kBlocksPerSm = 2;
/// More blocks than run at once, so that those that begin late have little left to do.
constexpr int kBlockRounds = 4;

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

/// A thread's two rows of the 16 of a warp.
struct RowPair {
  std::uint16_t* rows[2];
  bool exists[2];

  __device__ RowPair(const Arguments& a, std::uint16_t* head, std::int64_t first) {
    const device::QuadLane lane;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = first + lane.group + 8 * half;
      rows[half] = head + row * a.row_stride;
      // Rows without keys are zero and stay it.
      exists[half] = row < a.problem.queries && schedule::visible_keys(a.problem, row) > 0;
    }
  }
};

/// kAligned: rows start at multiples of 16 bytes.
template <bool kAligned>
__device__ __forceinline__ void load_rows(const RowPair& pair, RowPart (&parts)[2]) {
  const device::QuadLane lane;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < kThreadUnits; ++i) {
      const std::uint16_t* source =
          pair.rows[half] + (device::kQuadLanes * i + lane.quad) * device::kUnitElements;
      std::uint32_t(&words)[4] = parts[half][i];
      if constexpr (kAligned) {
        const uint4 unit = ptx::ld_global_v4(source, pair.exists[half]);
        words[0] = unit.x;
        words[1] = unit.y;
        words[2] = unit.z;
        words[3] = unit.w;
      } else {
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          words[w] = pair.exists[half]
                         ? source[2 * w] | static_cast<std::uint32_t>(source[2 * w + 1]) << 16
                         : 0u;
        }
      }
    }
  }
}

template <bool kAligned>
__device__ __forceinline__ void store_unit(std::uint16_t* target, const std::uint32_t (&words)[4]) {
  if constexpr (kAligned) {
    *reinterpret_cast<uint4*>(target) = make_uint4(words[0], words[1], words[2], words[3]);
  } else {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      target[2 * w] = static_cast<std::uint16_t>(words[w]);
      target[2 * w + 1] = static_cast<std::uint16_t>(words[w] >> 16);
    }
  }
}

/// The rows of a warp, in channels and with the means of V.
template <bool kFloat16, bool kAligned>
__device__ __forceinline__ void write_rows(const RowPair& pair, const RowPart (&parts)[2],
                                           const device::BasisTile& basis, const float* means) {
  const device::QuadLane lane;
#pragma unroll 1
  for (int first = 0; first < kDim; first += device::kColumnsAtOnce) {
    float sums[4][4] = {};
    device::multiply_rows<kFloat16>(parts, basis, first, sums);
    const int channel = first + lane.quad * device::kUnitElements;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t words[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float low = sums[n][2 * half] + means[channel + 2 * n];
        const float high = sums[n][2 * half + 1] + means[channel + 2 * n + 1];
        words[n] = kFloat16 ? ptx::cvt_rn_satfinite_f16x2(low, high)
                            : ptx::cvt_rn_satfinite_bf16x2(low, high);
      }
      if (pair.exists[half]) store_unit<kAligned>(pair.rows[half] + channel, words);
    }
  }
}

/// Two elements of the basis in the format of the output.
template <bool kFloat16>
struct BasisFormat {
  __device__ std::uint32_t operator()(std::uint32_t pair) const {
    if constexpr (!kFloat16) return pair;
    return ptx::cvt_rn_satfinite_f16x2(__uint_as_float(pair << 16),
                                       __uint_as_float(pair & 0xFFFF'0000u));
  }
};

/// Grid (heads * blocks_per_head), kThreads threads.
template <bool kFloat16, bool kAligned>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    leave_axes_kernel(const __grid_constant__ Arguments a) {
  __shared__ device::BasisTile basis;
  __shared__ float means[kDim];
  const std::int64_t bh = blockIdx.x / static_cast<unsigned>(a.blocks_per_head);
  const auto block = static_cast<int>(blockIdx.x % static_cast<unsigned>(a.blocks_per_head));
  const auto thread = static_cast<int>(threadIdx.x);
  std::uint16_t* head =
      a.output + bh / a.problem.heads * a.batch_stride + bh % a.problem.heads * a.head_stride;
  ptx::griddepcontrol_wait();
  if (!a.head_rules[bh].values_on_axes()) return;
  const std::int64_t stride = std::int64_t{a.blocks_per_head} * kRowsPerStep;
  std::int64_t first =
      std::int64_t{block} * kRowsPerStep + thread / device::kWarpLanes * kRowsPerWarp;
  RowPart parts[2];
  load_rows<kAligned>(RowPair(a, head, first), parts);
  device::load_basis(a.value_bases + bh * kDim * kDim, basis, BasisFormat<kFloat16>{});
  if (thread < kDim) means[thread] = a.value_means[bh * kDim + thread];
  __syncthreads();
  while (first < a.problem.queries) {
    RowPart next_parts[2];
    load_rows<kAligned>(RowPair(a, head, first + stride), next_parts);
    write_rows<kFloat16, kAligned>(RowPair(a, head, first), parts, basis, means);
    device::move_rows(next_parts, parts);
    first += stride;
  }
}

using Kernel = void (*)(Arguments);

Kernel choose_kernel(ElementType type, bool aligned) {
  if (type == ElementType::float16) {
    return aligned ? leave_axes_kernel<true, true> : leave_axes_kernel<true, false>;
  }
  return aligned ? leave_axes_kernel<false, true> : leave_axes_kernel<false, false>;
}

bool rows_are_aligned(const Arguments& a) {
  constexpr int kUnit = device::kUnitElements;
  return reinterpret_cast<std::uintptr_t>(a.output) % sizeof(uint4) == 0 &&
         a.batch_stride % kUnit == 0 && a.row_stride % kUnit == 0 && a.head_stride % kUnit == 0;
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
      numerics::ceil_div(std::int64_t{kBlockRounds} * kBlocksPerSm * device.multiprocessors, heads);
  a.blocks_per_head = static_cast<int>(tiles < share ? tiles : share);

  const DeviceGuard guard(device.ordinal);
  launch_kernel(choose_kernel(out.type, rows_are_aligned(a)), heads * a.blocks_per_head, kThreads,
                LaunchOrder::overlaps_previous, static_cast<cudaStream_t>(stream), a);
}

}  // namespace openvc::cuda::output
