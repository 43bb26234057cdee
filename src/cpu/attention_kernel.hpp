// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/aligned_buffer.hpp"
#include "cpu/thread_pool.hpp"
#include "numerics/contract.hpp"
#include "numerics/online_softmax.hpp"
#include "openvc/tensor_view.hpp"
#include "schedule/prepared_layout.hpp"

// What the driver in attention.cpp asks of an instruction set.
//
// A SIMD lane is a query. Both products are computed transposed, S^T = K Q^T and O^T = V^T P^T, so
// that the operand whose elements are broadcast (K, and V as it is packed) is used in the order in
// which the preparation stores it, maxima and sums of a row need no exchange between lanes, and P^T
// leaves the softmax in the layout in which the second product reads it.
//
// Operands are decoded once into words of `word_elements` neighbours along the contraction: one
// binary32 number, or a pair of BF16 numbers where the instruction set multiplies those. E4M3
// values are exact in both. Shapes in comments are row-major; "group" is the number of queries of a
// group.
namespace openvc::cpu {

/// Rows of packed V that are multiplied where it has residual columns: what stands behind them does
/// not matter.
inline constexpr int kMaxValueRows =
    static_cast<int>(numerics::round_up(numerics::kHeadDim + numerics::kValueColumns, 8));

/// numerics::RowState of the queries of a block, one array per field, and of the
/// numerics::BlockCast of the last key block what the second product needs.
struct RowStates {
  alignas(kVectorAlignment) float reference[numerics::kQueryBlock];
  alignas(kVectorAlignment) float sum[numerics::kQueryBlock];
  alignas(kVectorAlignment) float weight[numerics::kQueryBlock];
  alignas(kVectorAlignment) float rescale[numerics::kQueryBlock];

  [[nodiscard]] numerics::RowState row(int query) const { return {reference[query], sum[query]}; }
  void set_row(int query, const numerics::RowState& state) {
    reference[query] = state.reference;
    sum[query] = state.sum;
  }
};

/// Scores of one group of queries and one block of keys, rounded to binary16.
struct ScoreTask {
  const std::byte* queries = nullptr;  // words (columns / word_elements, group)
  const std::byte* keys = nullptr;     // words (kKeyBlock, columns / word_elements)
  int columns = 0;                     // kHeadDim and the residual columns
  int used_keys = 0;                   // leading keys that some query sees, rounded up to kKeyGroup
  int fewest_visible = 0;              // keys below this one are visible to all queries
  const std::int32_t* visible = nullptr;  // (group): leading keys that each query sees
  float* scores = nullptr;                // out (used_keys, group); -inf where masked
  float* block_max = nullptr;             // out (group); unspecified where a score is NaN
};

/// Scores to probabilities, and the update of the rows' softmax state.
struct CastTask {
  const float* scores = nullptr;     // (used_keys, group)
  const float* block_max = nullptr;  // (group)
  int used_keys = 0;
  numerics::HeadRule rule{};
  bool has_nan = false;  // a score may be NaN
  bool repair = false;   // adds nothing to the sum
  RowStates* rows = nullptr;
  int first_query = 0;                 // of the group in `rows`
  std::byte* probabilities = nullptr;  // out: words (used_keys / word_elements, group), slot order
};

/// accumulators = accumulators * rescale + weight * V^T P^T
struct ValueTask {
  const std::byte* values = nullptr;         // words (rows, kKeyBlock / word_elements)
  int rows = 0;                              // kHeadDim, or kMaxValueRows with residual columns
  const std::byte* probabilities = nullptr;  // words (used_keys / word_elements, group)
  int used_keys = 0;
  const float* weight = nullptr;   // (group)
  const float* rescale = nullptr;  // (group), or null: all 1
  float* accumulators = nullptr;   // (rows, group)
};

/// Normalises, scales and stores the rows of a group.
struct OutputTask {
  const float* accumulators = nullptr;  // (kHeadDim, group), with a basis (kMaxValueRows, group)
  const float* sum = nullptr;           // (group)
  const float* basis = nullptr;         // (axis, channel) where V is on axes, or null
  const float* value_scales = nullptr;  // (kHeadDim)
  const float* value_means = nullptr;   // (kHeadDim)
  int queries = 0;                      // of the group that exist
  ElementType type = ElementType::bfloat16;
  void* out = nullptr;            // of the first query
  std::int64_t query_stride = 0;  // elements
};

struct AttentionKernel {
  const char* name;
  int word_elements;  // 1: binary32, 2: BF16
  int group;          // divides kQueryBlock
  /// Decodes rows of `columns` codes, a multiple of 32. Returns whether there was a NaN.
  bool (*decode)(const std::uint8_t* codes, std::int64_t code_stride, int rows, int columns,
                 std::byte* words, std::int64_t row_bytes);
  /// Decoded rows (group, columns / word_elements) to the operand of score().
  void (*pack_queries)(const std::byte* rows, int columns, std::byte* queries);
  void (*score)(const ScoreTask& task);
  /// Returns whether a rescale differs from 1.
  bool (*cast)(const CastTask& task);
  void (*accumulate)(const ValueTask& task);
  void (*store)(const OutputTask& task);

  /// Bytes of decoded elements.
  [[nodiscard]] std::size_t word_bytes(std::int64_t elements) const {
    return static_cast<std::size_t>(elements / word_elements) * sizeof(float);
  }
};

/// The kernel with the highest throughput that this CPU can run.
const AttentionKernel& attention_kernel();

/// All kernels that this CPU can run. For tests; not while another thread computes attention.
std::vector<const AttentionKernel*> all_attention_kernels();

/// Highway's choice among the instruction sets that it was compiled for; binary32 products.
const AttentionKernel& highway_attention_kernel();

/// BF16 dot products of AVX-512, or null where compiler or CPU lack them.
const AttentionKernel* avx512_bf16_attention_kernel();

/// attention_prepared() by a kernel of choice.
void attention_prepared(const schedule::PreparedView& inputs, const MutableTensorView& out,
                        float* log_sum_exp, ThreadPool& pool, const AttentionKernel& kernel);

}  // namespace openvc::cpu
