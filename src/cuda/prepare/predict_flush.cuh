// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/row_chunk.cuh"
#include "cuda/prepare/statistics.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "numerics/bits.hpp"
#include "numerics/flush.hpp"
#include "schedule/prepared_layout.hpp"

// The flush of sampled queries and the tail correction of a head. The codes do not depend on it, so
// one more thread block of the second pass predicts it beside them.
namespace openvc::cuda::prepare {

struct FlushStorage {
  std::int64_t tokens[numerics::kFlushSamples];
  float sum_squares[numerics::kFlushSamples];
  float own_scores[numerics::kFlushSamples];
  float square_sums[kTileWarps];
};
static_assert(numerics::kFlushSamples == kTileThreads, "one sample per thread");

/// Dot products of all samples, sixteen threads a sample. Waits for the grid before.
template <ElementType kType, bool kAligned>
__device__ __forceinline__ void sample_scores(const Arguments& a, std::int64_t bh,
                                              FlushStorage& shared) {
  constexpr int kSamplesAtOnce = kTileThreads / kRowThreads;
  constexpr int kRowsInFlight = 4;
  const bool has_own_key = a.problem.queries == a.problem.keys;
  const TileThread thread;
  const std::byte* queries = a.q.head(bh, a.problem.heads);
  const std::byte* keys = a.k.head(bh, a.problem.heads);
  Chunk means;
#pragma unroll 1
  for (int first = 0; first < numerics::kFlushSamples; first += kRowsInFlight * kSamplesAtOnce) {
    RawChunk<kType> raw_queries[kRowsInFlight];
    RawChunk<kType> raw_keys[kRowsInFlight];
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      const std::int64_t token = shared.tokens[first + i * kSamplesAtOnce + thread.lane];
      raw_queries[i] = load_chunk<kType, kAligned>(queries + token * a.q.row_stride, thread.chunk);
      raw_keys[i] =
          load_chunk<kType, kAligned>(keys + token * a.k.row_stride, thread.chunk, has_own_key);
    }
    __syncthreads();  // keeps the loads above the first use
    if (first == 0) {
      ptx::griddepcontrol_wait();
      load_table(a.parameters(bh).key_means, thread.chunk, means);
    }
#pragma unroll
    for (int i = 0; i < kRowsInFlight; ++i) {
      Chunk query;
      to_floats<kType>(raw_queries[i], query);
      float own_score = -numerics::infinity();
      if (has_own_key) {
        Chunk key;
        to_floats<kType>(raw_keys[i], key);
#pragma unroll
        for (int c = 0; c < kChunkChannels; ++c) key[c] = key[c] - means[c];
        own_score = row_dot(query, key);
      }
      const float sum_squares = row_dot(query, query);
      if (thread.chunk == 0) {
        const int sample = first + i * kSamplesAtOnce + thread.lane;
        shared.sum_squares[sample] = sum_squares;
        shared.own_scores[sample] = own_score;
      }
    }
  }
}

/// Adds the predicted flush to the plan of a head, and to its rule what follows from it.
template <ElementType kType, bool kAligned>
__device__ __forceinline__ void predict_flush(const Arguments& a, std::int64_t bh,
                                              FlushStorage& shared) {
  const auto sample = static_cast<int>(threadIdx.x);
  const int count = numerics::flush_sample_count(a.problem.queries);
  shared.tokens[sample] =
      numerics::flush_sample_query(sample < count ? sample : count - 1, a.problem.queries);
  __syncthreads();
  sample_scores<kType, kAligned>(a, bh, shared);
  __syncthreads();
  const HeadParameters& parameters = a.parameters(bh);
  float flush = 0.0f;
  if (sample < count && parameters.finite != 0) {
    flush = numerics::row_flush(parameters.flush, shared.sum_squares[sample],
                                shared.own_scores[sample]);
  }
  const float square_sum = sum_lanes<kWarp>(flush * flush);
  if (sample % kWarp == 0) shared.square_sums[sample / kWarp] = square_sum;
  __syncthreads();
  if (sample != 0) return;
  const float rms =
      numerics::flush_rms(numerics::sum_balanced(shared.square_sums, kTileWarps), count);
  const bool tail_correction = numerics::wants_tail_correction(a.numerics.tail_correction, rms);
  a.plan(bh).predicted_flush = rms;
  a.plan(bh).tail_correction = tail_correction;
  a.section<schedule::HeadRule>(a.block_layout.head_rules)[bh].tail_correction =
      tail_correction ? 1 : 0;
}

}  // namespace openvc::cuda::prepare
