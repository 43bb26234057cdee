// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/row_chunk.cuh"
#include "cuda/prepare/statistics.cuh"
#include "cuda/ptx/atomic.cuh"
#include "numerics/bits.hpp"
#include "numerics/flush.hpp"
#include "schedule/prepared_layout.hpp"

// The flush of sampled queries and the tail correction of a head. The codes do not depend on it, so
// a few more thread blocks of the second pass predict it beside them.
namespace openvc::cuda::prepare {

/// Samples that a thread block takes at a time, sixteen threads a sample.
inline constexpr int kSamplesAtOnce = kTileThreads / kRowThreads;
/// How often it does so; the elements of all its samples are in flight together.
inline constexpr int kSampleBatches = 4;
inline constexpr int kBlockSamples = kSampleBatches * kSamplesAtOnce;
/// Blocks per head.
inline constexpr int kFlushBlocks = numerics::kFlushSamples / kBlockSamples;
static_assert(kFlushBlocks * kBlockSamples == numerics::kFlushSamples);
static_assert(numerics::kFlushSamples == kTileThreads, "one sample per thread");

struct FlushStorage {
  float sum_squares[kBlockSamples];
  float own_scores[kBlockSamples];
  float square_sums[kTileWarps];
  bool is_last;
};

/// Dot products of the samples from `first` on. `wait` returns when the parameters can be read.
template <ElementType kType, bool kAligned, class Wait>
__device__ __forceinline__ void sample_scores(const Arguments& a, std::int64_t bh, int first,
                                              const Wait& wait, FlushStorage& shared) {
  const bool has_own_key = a.problem.queries == a.problem.keys;
  const TileThread thread;
  const std::byte* queries = a.q.head(bh, a.problem.heads);
  const std::byte* keys = a.k.head(bh, a.problem.heads);
  const int count = numerics::flush_sample_count(a.problem.queries);
  RawChunk<kType> raw_queries[kSampleBatches];
  RawChunk<kType> raw_keys[kSampleBatches];
#pragma unroll
  for (int i = 0; i < kSampleBatches; ++i) {
    const int sample = first + i * kSamplesAtOnce + thread.lane;
    const std::int64_t token =
        numerics::flush_sample_query(sample < count ? sample : count - 1, a.problem.queries);
    raw_queries[i] = load_chunk<kType, kAligned>(queries + token * a.q.row_stride, thread.chunk);
    raw_keys[i] =
        load_chunk<kType, kAligned>(keys + token * a.k.row_stride, thread.chunk, has_own_key);
  }
  wait();
  Chunk means;
  load_table(a.plan(bh).key_means, thread.chunk, means);
#pragma unroll
  for (int i = 0; i < kSampleBatches; ++i) {
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
      shared.sum_squares[i * kSamplesAtOnce + thread.lane] = sum_squares;
      shared.own_scores[i * kSamplesAtOnce + thread.lane] = own_score;
    }
  }
}

/// Square of the predicted flush of one sample.
__device__ __forceinline__ float flush_square(const Arguments& a, std::int64_t bh, int sample,
                                              float sum_squares, float own_score) {
  const FlushInputs& inputs = a.flush_inputs(bh);
  if (sample >= numerics::flush_sample_count(a.problem.queries) || inputs.finite == 0) return 0.0f;
  const float flush = numerics::row_flush(inputs.model, sum_squares, own_score);
  return flush * flush;
}

/// Adds the predicted flush to the plan of a head, and to its rule what follows from it. All
/// threads; `square` is that of the sample with the thread's number.
__device__ __forceinline__ void write_flush(const Arguments& a, std::int64_t bh, float square,
                                            FlushStorage& shared) {
  const auto sample = static_cast<int>(threadIdx.x);
  const float square_sum = sum_lanes<kWarp>(square);
  if (sample % kWarp == 0) shared.square_sums[sample / kWarp] = square_sum;
  __syncthreads();
  if (sample != 0) return;
  const float rms = numerics::flush_rms(numerics::sum_balanced(shared.square_sums, kTileWarps),
                                        numerics::flush_sample_count(a.problem.queries));
  const bool tail_correction = numerics::wants_tail_correction(a.numerics.tail_correction, rms);
  numerics::HeadPlan& plan = a.plan(bh);
  plan.probability_flush = numerics::predict_probability_flush(rms, tail_correction);
  plan.tail_correction = tail_correction ? 1 : 0;
  a.head_rule(bh).tail_correction = tail_correction ? 1 : 0;
}

/// One of the kFlushBlocks blocks of a head; the last to be done joins the results of all.
template <ElementType kType, bool kAligned, class Wait>
__device__ __forceinline__ void predict_flush(const Arguments& a, std::int64_t bh, int block,
                                              const Wait& wait, FlushStorage& shared) {
  const int first = block * kBlockSamples;
  sample_scores<kType, kAligned>(a, bh, first, wait, shared);
  __syncthreads();
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < kBlockSamples) {
    a.flush_squares(bh)[first + thread] =
        flush_square(a, bh, first + thread, shared.sum_squares[thread], shared.own_scores[thread]);
  }
  __syncthreads();
  if (thread == 0) {
    shared.is_last = ptx::atom_add_acq_rel_gpu(a.flush_arrivals(bh), 1) == kFlushBlocks - 1;
  }
  __syncthreads();
  if (shared.is_last) write_flush(a, bh, a.flush_squares(bh)[thread], shared);
}

}  // namespace openvc::cuda::prepare
