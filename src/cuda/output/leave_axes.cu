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
#include "cuda/ptx/shared_memory.cuh"
#include "schedule/mask.hpp"

// A block takes tiles of the output, multiplies them by the basis of their head, which waits in
// shared memory, and writes them back: rows of a tile are read before any of them is written, so
// this works in place. The next tile is on its way meanwhile. Elements of the basis are numbers of
// both output types; sums are binary32.
namespace openvc::cuda::output {
namespace {

constexpr int kThreads = device::kProductThreads;
constexpr int kTileRows = device::kProductRows;
constexpr int kDim = numerics::kHeadDim;
constexpr int kBlocksPerSm = 2;
/// More blocks than run at once, so that those that begin late have little left to do.
constexpr int kBlockRounds = 4;

struct Arguments {
  schedule::Problem problem;
  const schedule::SequenceBounds* bounds;
  const numerics::HeadRule* head_rules;
  const std::uint16_t* value_bases;
  const float* value_means;
  std::uint16_t* output;
  std::int64_t batch_stride;  // elements
  std::int64_t row_stride;
  std::int64_t head_stride;
  int blocks_per_head;
};

/// Rows of a head. Rows without keys are zero and stay it.
struct HeadRows {
  const schedule::Problem& problem;
  std::uint16_t* data;
  std::int64_t stride;

  [[nodiscard]] __device__ __forceinline__ bool exists(std::int64_t row) const {
    return row < problem.queries && schedule::visible_keys(problem, row) > 0;
  }
  [[nodiscard]] __device__ __forceinline__ std::uint16_t* row(std::int64_t row) const {
    return data + row * stride;
  }
};

constexpr int kBasisColumns = kDim + numerics::kValueAxes;
constexpr int kBasisPitch = kBasisColumns / device::kUnitElements;
/// Units of a depth: the axes that have a second term, and zeros.
constexpr int kSecondTermUnits = device::kDepth / device::kUnitElements;
static_assert(numerics::kValueAxes == device::kUnitElements);

struct Storage {
  device::OperandTile basis;
  device::SecondTermsByChannel second_terms;
  device::OperandTile rows[2];
  float means[kDim];
};

/// kAligned: rows start at multiples of 16 bytes.
template <bool kAligned>
__device__ __forceinline__ void start_tile(const HeadRows& head, std::int64_t first,
                                           device::OperandTile& tile) {
  device::start_rows<kAligned>(
      [&](int i) -> device::RowSource {
        const bool exists = head.exists(first + i);
        return {head.row(exists ? first + i : 0), exists};
      },
      device::kRowUnits, tile);
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

/// The rows of a tile, in channels and with the means of V.
template <bool kFloat16, bool kAligned>
__device__ __forceinline__ void write_tile(const HeadRows& head, std::int64_t first,
                                           const Storage& shared, const device::OperandTile& tile) {
  const device::ProductThread thread;
  device::RowProducts sums = {};
  device::multiply_rows<kFloat16, 1>(tile, shared.second_terms, sums);
  device::multiply_rows<kFloat16>(tile, shared.basis, sums);
#pragma unroll
  for (int g = 0; g < device::kColumnGroups; ++g) {
    const int channel =
        thread.first_column + device::kGroupColumns * g + thread.quad * device::kUnitElements;
    float means[device::kUnitElements];
#pragma unroll
    for (int c = 0; c < device::kUnitElements; ++c) means[c] = shared.means[channel + c];
#pragma unroll
    for (int i = 0; i < device::kWarpRows / 8; ++i) {
      const std::int64_t row = first + thread.first_row + thread.group + 8 * i;
      std::uint32_t words[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float(&pair)[4] = sums[i / 2][4 * g + n];
        const float low = pair[i % 2 * 2] + means[2 * n];
        const float high = pair[i % 2 * 2 + 1] + means[2 * n + 1];
        words[n] = kFloat16 ? ptx::cvt_rn_satfinite_f16x2(low, high)
                            : ptx::cvt_rn_satfinite_bf16x2(low, high);
      }
      if (head.exists(row)) store_unit<kAligned>(head.row(row) + channel, words);
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

/// Both terms of the basis of a head; all threads.
template <bool kFloat16>
__device__ __forceinline__ void load_bases(const std::uint16_t* bases, Storage& shared) {
  const BasisFormat<kFloat16> convert;
  device::load_basis(bases, kBasisPitch, shared.basis, convert);
  const auto* source = reinterpret_cast<const uint4*>(bases);
  for (int i = static_cast<int>(threadIdx.x); i < kDim * kSecondTermUnits; i += kThreads) {
    const int row = i / kSecondTermUnits;
    const int unit = i % kSecondTermUnits;
    const uint4 low = unit == 0 ? source[row * kBasisPitch + device::kRowUnits] : uint4{};
    shared.second_terms.unit(row, unit) =
        make_uint4(convert(low.x), convert(low.y), convert(low.z), convert(low.w));
  }
}

/// Grid (heads * blocks_per_head), kThreads threads, sizeof(Storage) bytes of shared memory.
template <bool kFloat16, bool kAligned>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    leave_axes_kernel(const __grid_constant__ Arguments a) {
  auto& shared = ptx::dynamic_shared<Storage>();
  const std::int64_t bh = blockIdx.x / static_cast<unsigned>(a.blocks_per_head);
  const std::int64_t stride = std::int64_t{a.blocks_per_head} * kTileRows;
  std::int64_t first =
      blockIdx.x % static_cast<unsigned>(a.blocks_per_head) * std::int64_t{kTileRows};
  ptx::griddepcontrol_wait();
  if (!a.head_rules[bh].values_on_axes()) return;
  const schedule::SequenceBounds sequence = schedule::bounds_of_head(a.problem, a.bounds, bh);
  const schedule::Problem problem = sequence.of(a.problem);
  const HeadRows head{problem,
                      a.output + bh / a.problem.heads * a.batch_stride +
                          bh % a.problem.heads * a.head_stride +
                          sequence.first_query * a.row_stride,
                      a.row_stride};
  start_tile<kAligned>(head, first, shared.rows[0]);
  load_bases<kFloat16>(a.value_bases + bh * kDim * kBasisColumns, shared);
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < kDim) shared.means[thread] = a.value_means[bh * kDim + thread];
  for (int buffer = 0; first < problem.queries; first += stride, buffer ^= 1) {
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the tile is here, and the other one is done with
    if (first + stride < problem.queries) {
      start_tile<kAligned>(head, first + stride, shared.rows[buffer ^ 1]);
    }
    write_tile<kFloat16, kAligned>(head, first, shared, shared.rows[buffer]);
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
  a.bounds = inputs.bounds();
  a.head_rules = reinterpret_cast<const numerics::HeadRule*>(inputs.data + layout.head_rules);
  a.value_bases = reinterpret_cast<const std::uint16_t*>(inputs.data + layout.value_bases);
  a.value_means = reinterpret_cast<const float*>(inputs.data + layout.value_means);
  a.output = static_cast<std::uint16_t*>(out.data);
  a.batch_stride = out.shape[kBatch] > 1 ? out.strides[kBatch] : 0;
  a.row_stride = out.shape[kSequence] > 1 ? out.strides[kSequence] : 0;
  a.head_stride = out.shape[kHead] > 1 ? out.strides[kHead] : 0;
  const std::int64_t heads = a.problem.batch_heads();
  const std::int64_t tiles = numerics::ceil_div(a.problem.queries, kTileRows);
  const std::int64_t share =
      numerics::ceil_div(std::int64_t{kBlockRounds} * kBlocksPerSm * device.multiprocessors, heads);
  a.blocks_per_head = static_cast<int>(tiles < share ? tiles : share);

  const DeviceGuard guard(device.ordinal);
  const Kernel kernel = choose_kernel(out.type, rows_are_aligned(a));
  reserve_shared_memory(kernel, sizeof(Storage));
  const LaunchShape shape{heads * a.blocks_per_head, kThreads, sizeof(Storage)};
  launch_kernel(kernel, shape, LaunchOrder::overlaps_previous, static_cast<cudaStream_t>(stream),
                a);
}

}  // namespace openvc::cuda::output
