// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "api/refusal.hpp"
#include "openvc/options.hpp"
#include "openvc/status.hpp"
#include "openvc/tensor_view.hpp"

// The input contract, as pure functions. Nothing here touches the elements of a tensor.
//
// Every message has the same shape: the argument, what was found, what was expected, what to do.
namespace openvc::api {

/// Throws a refusal as openvc::Error.
void require(const MaybeRefusal& refusal);

/// A named argument; the name appears in messages.
struct NamedTensor {
  const char* name;
  const TensorView& tensor;
};

/// One tensor by itself: sizes, element type, strides. Not the pointer: a tensor without memory may
/// be asked about.
MaybeRefusal validate_tensor(const NamedTensor& argument);

/// The pointer of a tensor that is going to be read or written.
MaybeRefusal validate_pointer(const NamedTensor& argument);
MaybeRefusal validate_pointers(const TensorView& q, const TensorView& k, const TensorView& v);

/// Q, K and V together, without their pointers. `any_head_dim` lifts the limit to kHeadDim
/// channels.
MaybeRefusal validate_inputs(const TensorView& q, const TensorView& k, const TensorView& v,
                             bool any_head_dim = false);

MaybeRefusal validate_softmax_scale(std::optional<float> scale);
MaybeRefusal validate_mask(Mask mask);
MaybeRefusal validate_options(const AttentionOptions& options);
MaybeRefusal validate_execution(const Execution& execution);
/// Query rows that exact attention is asked for.
MaybeRefusal validate_rows(std::span<const std::int64_t> rows, std::int64_t queries);
MaybeRefusal validate_repair(double budget, const AttentionOptions& options);
/// Prepared inputs have all keys, of sequences of one length.
MaybeRefusal validate_no_selection(const AttentionOptions& options);

/// The argument that selects keys.
const char* selection_name(const KeySelection& keys);

/// Packed sequences by themselves, and with the tensors that they are in.
MaybeRefusal validate_sequence_options(const PackedSequences& sequences, const KeySelection& keys);
MaybeRefusal validate_sequences(const PackedSequences& sequences, const TensorView& q,
                                const TensorView& k);
/// Boundaries that are going to be read, and their values where the host can.
MaybeRefusal validate_boundary_pointers(const PackedSequences& sequences);
MaybeRefusal validate_boundaries(const PackedSequences& sequences, std::int64_t queries,
                                 std::int64_t keys);

/// The rows of prepared inputs for so many sequences and heads of so many tokens each.
MaybeRefusal validate_rows_of_all_heads(std::int64_t batch, std::int64_t heads,
                                        std::int64_t queries, std::int64_t keys);

/// The output of an attention with queries of shape `shape`.
MaybeRefusal validate_output(const MutableTensorView& out, const std::array<std::int64_t, 4>& shape,
                             ElementType type, Device device);

/// `out` and log_sum_exp (null, or `log_sum_exp_values` floats) overlap neither each other nor an
/// input, judged by the address ranges that they span.
MaybeRefusal validate_no_overlap(const MutableTensorView& out, const float* log_sum_exp,
                                 std::int64_t log_sum_exp_values,
                                 std::span<const NamedTensor> inputs);

/// What selects the keys of `k`, or divides it into sequences, exists in 64 bits of address, and
/// nothing that the call writes overlaps it.
MaybeRefusal validate_selection_memory(const AttentionOptions& options, const TensorView& k,
                                       const MutableTensorView& out, const float* log_sum_exp,
                                       std::int64_t log_sum_exp_values);

}  // namespace openvc::api
