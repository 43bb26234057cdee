// SPDX-License-Identifier: BSD-3-Clause
//
// Packed sequences: their numbers, and their boundaries where the host can read them.
#include <cstdint>
#include <string>

#include "api/describe.hpp"
#include "api/validate.hpp"
#include "schedule/sequence_bounds.hpp"

namespace openvc::api {
namespace {

constexpr const char* kBoundariesAdvice =
    " Pass the running sums of the lengths, behind a 0: one number more than sequences.";

/// What belongs to one of the two tensors.
struct Side {
  const char* boundaries_name;
  const char* longest_name;
  const char* tensor_name;
  const std::int32_t* boundaries;
  std::int64_t longest;
};

Side of_queries(const PackedSequences& sequences) {
  return {"cu_seqlens_q", "max_seqlen_q", "q", sequences.cu_seqlens_q, sequences.max_seqlen_q};
}

Side of_keys(const PackedSequences& sequences) {
  return {"cu_seqlens_k", "max_seqlen_k", "k", sequences.cu_seqlens_k, sequences.max_seqlen_k};
}

MaybeRefusal validate_side(const Side& side) {
  if (side.longest < 0) {
    return invalid_value(std::string(side.longest_name) + ": " + std::to_string(side.longest) +
                         "; expected the number of tokens of the longest sequence, 0 or more.");
  }
  if (reinterpret_cast<std::uintptr_t>(side.boundaries) % alignof(std::int32_t) == 0) return {};
  return invalid_value(std::string(side.boundaries_name) +
                       ": pointer is not a multiple of 4; expected aligned integers.");
}

MaybeRefusal validate_pointer(const Side& side) {
  if (side.boundaries != nullptr) return {};
  return invalid_value(std::string(side.boundaries_name) +
                       ": pointer is null; expected the boundaries of the sequences, int32, on the "
                       "device of q." +
                       kBoundariesAdvice);
}

MaybeRefusal validate_boundaries(const Side& side, std::int64_t count, std::int64_t tokens) {
  const std::string name = side.boundaries_name;
  if (side.boundaries[0] != 0) {
    return invalid_value(name + ": starts with " + std::to_string(side.boundaries[0]) +
                         "; expected 0." + kBoundariesAdvice);
  }
  for (std::int64_t b = 0; b < count; ++b) {
    if (side.boundaries[b + 1] >= side.boundaries[b]) continue;
    return invalid_value(name + ": " + std::to_string(side.boundaries[b + 1]) + " at index " +
                         std::to_string(b + 1) + " follows " + std::to_string(side.boundaries[b]) +
                         "; expected numbers that never fall." + kBoundariesAdvice);
  }
  if (side.boundaries[count] > tokens) {
    return invalid_value(name + ": ends with " + std::to_string(side.boundaries[count]) +
                         "; expected at most " + std::to_string(tokens) + ", the tokens of " +
                         side.tensor_name + "." + kBoundariesAdvice);
  }
  for (std::int64_t b = 0; b < count; ++b) {
    const std::int64_t length = side.boundaries[b + 1] - side.boundaries[b];
    if (length <= side.longest) continue;
    return invalid_value(std::string(side.longest_name) + ": " + std::to_string(side.longest) +
                         "; expected at least " + std::to_string(length) +
                         ", the tokens of sequence " + std::to_string(b) + " in " + name +
                         ". Pass the number of tokens of the longest.");
  }
  return {};
}

}  // namespace

MaybeRefusal validate_sequence_options(const PackedSequences& sequences, const KeySelection& keys) {
  if (sequences.count < 0) {
    return invalid_value("sequences: " + std::to_string(sequences.count) +
                         "; expected their number, 0 for tensors that are not packed.");
  }
  if (!sequences.any()) return {};
  if (keys.any()) {
    return unsupported(std::string(selection_name(keys)) +
                       ": together with packed sequences; expected one of the two. Leave the keys "
                       "that do not take part out of k and v, and count them out of cu_seqlens_k.");
  }
  if (MaybeRefusal refusal = validate_side(of_queries(sequences))) return refusal;
  return validate_side(of_keys(sequences));
}

MaybeRefusal validate_sequences(const PackedSequences& sequences, const TensorView& q,
                                const TensorView& k) {
  if (!sequences.any()) return {};
  if (q.shape[kBatch] != 1) {
    return invalid_value("q: shape " + describe(q.shape) + " has batch " +
                         std::to_string(q.shape[kBatch]) +
                         "; expected 1 with packed sequences, which follow each other in one. Use "
                         "[1, B * S, H, D], or leave out cu_seqlens_q and cu_seqlens_k.");
  }
  return validate_rows_of_all_heads(
      sequences.count, q.shape[kHead],
      schedule::packed_room(sequences.max_seqlen_q, q.shape[kSequence]),
      schedule::packed_room(sequences.max_seqlen_k, k.shape[kSequence]));
}

MaybeRefusal validate_boundaries(const PackedSequences& sequences, std::int64_t queries,
                                 std::int64_t keys) {
  if (MaybeRefusal refusal = validate_boundary_pointers(sequences)) return refusal;
  if (MaybeRefusal refusal = validate_boundaries(of_queries(sequences), sequences.count, queries)) {
    return refusal;
  }
  return validate_boundaries(of_keys(sequences), sequences.count, keys);
}

MaybeRefusal validate_boundary_pointers(const PackedSequences& sequences) {
  if (!sequences.any()) return {};
  if (MaybeRefusal refusal = validate_pointer(of_queries(sequences))) return refusal;
  return validate_pointer(of_keys(sequences));
}

}  // namespace openvc::api
