// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "cuda/prepare/block_team.cuh"
#include "cuda/prepare/row_chunk.cuh"
#include "numerics/orthogonal_basis.hpp"
#include "numerics/principal_axes.hpp"

// Gram-Schmidt and the reflections of a basis, whose steps depend on each other: the columns stay
// in registers and a step synchronises the block once. The same operations in the same order as the
// rules, which these overloads stand in for when a thread block is the team.
namespace openvc::cuda::prepare {

/// 16 neighbouring threads hold a column, a chunk of rows each.
template <int kThreads, int kMaxColumns>
struct RegisterColumns {
  static constexpr int kDim = numerics::kHeadDim;
  static constexpr int kChunks = numerics::kColumnChunks<kDim>;
  static constexpr int kRows = numerics::kRowChunk;
  static constexpr int kColumnsAtOnce = kThreads / kChunks;
  static constexpr int kEach = (kMaxColumns + kColumnsAtOnce - 1) / kColumnsAtOnce;
  static_assert(kThreads % kWarp == 0 && kWarp % kChunks == 0);

  float values[kEach][kRows];
  float pivot[kRows];  // the thread's rows of the column of the step

  [[nodiscard]] static __device__ __forceinline__ int chunk() {
    return static_cast<int>(threadIdx.x) % kChunks;
  }
  [[nodiscard]] static __device__ __forceinline__ int column(int e) {
    return static_cast<int>(threadIdx.x) / kChunks + e * kColumnsAtOnce;
  }

  /// `matrix` is stored by rows of `columns` elements.
  __device__ __forceinline__ void load(const float* matrix, int columns) {
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (column(e) >= columns) continue;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        values[e][r] = matrix[(chunk() * kRows + r) * columns + column(e)];
      }
    }
  }

  /// Gives all threads column i. `memory` holds two columns, which steps use in turn.
  __device__ __forceinline__ const float* publish(int i, float* memory) {
    float* shared = memory + i % 2 * kDim;
#pragma unroll
    for (int e = 0; e < kEach; ++e) {
      if (column(e) != i) continue;
#pragma unroll
      for (int r = 0; r < kRows; ++r) shared[chunk() * kRows + r] = values[e][r];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) pivot[r] = shared[chunk() * kRows + r];
    return shared;
  }

  /// Sum over the chunks of a column: numerics::sum_balanced of them.
  [[nodiscard]] static __device__ __forceinline__ float join(float partial) {
#pragma unroll
    for (int distance = 1; distance < kChunks; distance *= 2) {
      partial = partial + __shfl_xor_sync(kAllLanes, partial, distance);
    }
    return partial;
  }

  /// Dot product of the pivot and another column's rows in this thread, from row `first_row` on.
  [[nodiscard]] __device__ __forceinline__ float dot(const float (&other)[kRows],
                                                     int first_row = 0) const {
    float sum = 0.0f;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (chunk() * kRows + r >= first_row) sum = __fmaf_rn(pivot[r], other[r], sum);
    }
    return join(sum);
  }
};

/// numerics::orthonormalize.
template <int kDim>
__host__ __device__ void orthonormalize([[maybe_unused]] const BlockTeam& team,
                                        [[maybe_unused]] float* x, [[maybe_unused]] int columns,
                                        [[maybe_unused]] numerics::AxesStorageOf<kDim>& storage) {
#if defined(__CUDA_ARCH__)
  using Columns = RegisterColumns<kAxesThreads, numerics::kMaxAxes>;
  static_assert(sizeof(storage.partials) >= 2 * kDim * sizeof(float));
  Columns matrix;
  matrix.load(x, columns);
  float scales[Columns::kEach];
#pragma unroll
  for (int e = 0; e < Columns::kEach; ++e) {
    const int j = Columns::column(e);
    if (j >= columns) continue;
#pragma unroll
    for (int r = 0; r < Columns::kRows; ++r) matrix.pivot[r] = matrix.values[e][r];
    const float square = matrix.dot(matrix.values[e]);
    if (Columns::chunk() == 0) storage.squares[j] = square;  // before; published with column 0
  }
  for (int i = 0; i < columns; ++i) {
    (void)matrix.publish(i, storage.partials);
    const float square = matrix.dot(matrix.pivot);
    const bool usable =
        square > numerics::kMinSquare && square > numerics::kDependentShare * storage.squares[i];
#pragma unroll
    for (int e = 0; e < Columns::kEach; ++e) {
      const int j = Columns::column(e);
      if (j >= columns) continue;
      const float product = matrix.dot(matrix.values[e]);
      if (j == i) scales[e] = usable ? 1.0f / __fsqrt_rn(square) : 0.0f;
      if (j <= i) continue;
      const float factor = usable ? -(product / square) : 0.0f;
#pragma unroll
      for (int r = 0; r < Columns::kRows; ++r) {
        matrix.values[e][r] = __fmaf_rn(matrix.pivot[r], factor, matrix.values[e][r]);
      }
    }
  }
#pragma unroll
  for (int e = 0; e < Columns::kEach; ++e) {
    const int j = Columns::column(e);
    if (j >= columns) continue;
#pragma unroll
    for (int r = 0; r < Columns::kRows; ++r) {
      x[(Columns::chunk() * Columns::kRows + r) * columns + j] = matrix.values[e][r] * scales[e];
    }
  }
  __syncthreads();
#endif
}

/// Fills the registers with F X and with columns of F, as numerics::start_basis does.
template <class Columns, int kDim, int kChannels>
__device__ __forceinline__ void start_basis(const numerics::AxesView& axes, int first_channel,
                                            numerics::BasisStorageOf<kDim, kChannels>& storage,
                                            Columns& matrix) {
  constexpr float kElement = numerics::normalized_hadamard_element<kDim>();
  // Axes pass through shared memory. What shifts a chunk of rows against the next spreads threads
  // of a warp, two columns of all chunks, over the banks.
  constexpr int kShift = kWarp / Columns::kChunks;
  const int columns = axes.columns;
  const auto place = [columns](int row, int j) {
    return row * columns + j + row / Columns::kRows * kShift;
  };
  static_assert(kDim * numerics::kMaxAxes + Columns::kChunks * kShift <=
                static_cast<int>(sizeof(storage.rows) / sizeof(float)));
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < kDim * columns; i += kBasisThreads) {
    const int row = i / columns;
    const int j = i % columns;
    storage.rows[place(row, j)] = axes.data[row * axes.stride + j];
  }
  __syncthreads();
  const int chunk = Columns::chunk();
#pragma unroll
  for (int e = 0; e < Columns::kEach; ++e) {
    const int j = Columns::column(e);
    float(&values)[Columns::kRows] = matrix.values[e];
    if (j >= columns) {
#pragma unroll
      for (int r = 0; r < Columns::kRows; ++r) {
        const int row = chunk * Columns::kRows + r;
        values[r] =
            numerics::hadamard_is_negative(row, first_channel + j - columns) ? -kElement : kElement;
      }
      continue;
    }
#pragma unroll
    for (int r = 0; r < Columns::kRows; ++r) {
      values[r] = storage.rows[place(chunk * Columns::kRows + r, j)];
    }
    rotate(values, chunk, kElement);
  }
  __syncthreads();
}

/// numerics::orthogonal_basis: F X in registers, then the reflections.
template <int kDim, int kChannels>
__device__ __forceinline__ void orthogonal_basis(
    const BlockTeam&, const numerics::AxesView& axes, int first_channel,
    numerics::BasisStorageOf<kDim, kChannels>& storage) {
  using Storage = numerics::BasisStorageOf<kDim, kChannels>;
  using Columns = RegisterColumns<kBasisThreads, Storage::kMaxColumns>;
  constexpr int kRows = Columns::kRows;
  static_assert(sizeof(storage.partials) >= 2 * kDim * sizeof(float));
  static_assert(numerics::kResidualChannelsPerStep % kRows == 0 &&
                numerics::kValueAxes % kRows == 0);
  static_assert(kRows == kChunkChannels && Columns::kChunks == kRowThreads);  // for rotate()
  const int columns = axes.columns;
  const int width = columns + kChannels;
  const int chunk = Columns::chunk();
  Columns matrix;
  start_basis(axes, first_channel, storage, matrix);
  for (int block = 0; block < columns / kRows; ++block) {
#pragma unroll
    for (int step = 0; step < kRows; ++step) {
      const int i = block * kRows + step;
      const float diagonal = matrix.publish(i, storage.partials)[i];
      const float square = matrix.dot(matrix.pivot, i);
      const float norm = __fsqrt_rn(square);
      const float image = diagonal < 0.0f ? norm : -norm;  // of the reflected column
      const float half = __fmaf_rn(norm, numerics::magnitude(diagonal), square);
#pragma unroll
      for (int e = 0; e < Columns::kEach; ++e) {
        const int j = Columns::column(e);
        if (j >= width) continue;
        const float on_diagonal =
            __shfl_sync(kAllLanes, matrix.values[e][step], block, Columns::kChunks);
        const float product = __fmaf_rn(-image, on_diagonal, matrix.dot(matrix.values[e], i));
        if (j <= i) continue;
        const float factor = square > numerics::kMinSquare ? -(product / half) : 0.0f;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const int row = chunk * kRows + r;
          if (row < i) continue;
          const float reflector = row == i ? diagonal - image : matrix.pivot[r];
          matrix.values[e][r] = __fmaf_rn(reflector, factor, matrix.values[e][r]);
        }
      }
    }
  }
#pragma unroll
  for (int e = 0; e < Columns::kEach; ++e) {
    const int j = Columns::column(e);
    if (j < columns || j >= width) continue;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      storage.rows[(chunk * kRows + r) * width + j] = matrix.values[e][r];
    }
  }
  __syncthreads();
}

}  // namespace openvc::cuda::prepare
