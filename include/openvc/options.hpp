// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "openvc/numeric_options.hpp"

// Vocabulary of the whole library: what a caller can ask for and what a plan answers.
namespace openvc {

enum class Mask : std::uint8_t {
  none,
  causal,  ///< aligned to the bottom right: query i sees the keys j <= i + Skv - Sq
};

/// Order in which key blocks are visited: that of the binary32 sums, hence a few bits of the
/// result.
enum class KeyOrder : std::uint8_t {
  mid_window,  ///< from just right of the query's own position down to 0, then the rest
  descending,  ///< from the last key to the first (always used with a causal mask)
};

/// Names of the values, as names_of(Choice) of numeric_options.hpp.
[[nodiscard]] constexpr std::array<const char*, 2> names_of(Mask) noexcept {
  return {"none", "causal"};
}
[[nodiscard]] constexpr std::array<const char*, 2> names_of(KeyOrder) noexcept {
  return {"mid_window", "descending"};
}

/// Range of softmax_scale. Beyond it the factor 8 log2(e) softmax_scale, which is folded into Q as
/// a binary32 number, would overflow or lose digits.
inline constexpr float kSmallestSoftmaxScale = 0x1p-126f;
inline constexpr float kLargestSoftmaxScale = 0x1p+124f;
inline constexpr const char* kSoftmaxScaleRange = "2^-126 (1.2e-38) to 2^124 (2.1e+37)";

/// Whether this number can be a softmax_scale; false for NaN. A double decides before it is
/// rounded.
[[nodiscard]] constexpr bool is_softmax_scale(double scale) noexcept {
  return scale >= kSmallestSoftmaxScale && scale <= kLargestSoftmaxScale;
}

/// Keys that take part in attention; all if both pointers are null. Keys that do not take part do
/// not exist: the output of a sequence is, bit for bit, that of a call without them, whatever they
/// hold, NaN too. A sequence without keys has an output of zeros and a log-sum-exp of -infinity.
///
/// Both are read on the device of Q, K and V, in the order of the stream, and nothing waits for
/// them.
struct KeySelection {
  /// [B], or null: of sequence b the keys j < lengths[b]. What is below 0 or above Skv counts as
  /// those.
  const std::int32_t* lengths = nullptr;
  /// [B, Skv], or null: keys with a byte that is not zero. With `lengths`, those that both name.
  const std::uint8_t* mask = nullptr;
  std::int64_t mask_batch_stride = 0;  ///< bytes; 0 for one mask of all sequences
  std::int64_t mask_key_stride = 1;    ///< bytes

  [[nodiscard]] constexpr bool any() const noexcept {
    return lengths != nullptr || mask != nullptr;
  }
};

/// Sequences of unlike lengths that follow each other in tensors of batch 1: packed, "varlen".
/// Sequence b has the queries cu_seqlens_q[b] <= i < cu_seqlens_q[b + 1], and its keys and values
/// likewise. Its output and log-sum-exp are, bit for bit, those of a call of its own; without keys
/// they are zero and -infinity. Rows of the output that belong to no sequence are not written.
///
/// Boundaries are on the device of Q, K and V, start with 0 and never fall. On the CPU others are
/// refused. On a GPU they are read in the order of the stream, and nothing waits for them: others
/// give a result without meaning there, but nothing outside the tensors is read or written.
///
/// On a GPU the prepared inputs have room for the longest sequence `count` times, so lengths that
/// differ much cost memory.
struct PackedSequences {
  std::int64_t count = 0;                      ///< B; 0 for tensors that are not packed
  const std::int32_t* cu_seqlens_q = nullptr;  ///< [B + 1], running sums of the lengths
  const std::int32_t* cu_seqlens_k = nullptr;  ///< [B + 1]
  /// At least the longest sequence; a longer one counts as one of so many tokens on a GPU.
  std::int64_t max_seqlen_q = 0;
  std::int64_t max_seqlen_k = 0;

  [[nodiscard]] constexpr bool any() const noexcept { return count != 0; }
};

struct AttentionOptions {
  Mask mask = Mask::none;
  /// Factor of q.k within kSoftmaxScaleRange; 1/sqrt(D) if empty.
  std::optional<float> softmax_scale;
  KeyOrder key_order = KeyOrder::mid_window;
  NumericOptions numerics{};
  /// For attention() and is_supported(); without a causal mask.
  KeySelection keys{};
  /// For attention() and is_supported(); without a selection of keys.
  PackedSequences sequences{};
};

/// Most CPU threads of a call: more than any machine has cores.
inline constexpr int kMaxThreads = 4096;

/// How a call runs; never changes its result.
struct Execution {
  /// CPU threads, at most kMaxThreads. 0: OMP_NUM_THREADS, or else the CPUs that the process may
  /// run on, limited by the quota of its control groups (info() tells the number and why).
  int threads = 0;
  void* stream = nullptr;  ///< cudaStream_t for CUDA tensors
  /// Where CUDA calls get device memory from: that many bytes, aligned to 256, usable on `stream`
  /// at once and freed in its order when the last reference is dropped. Empty: cudaMallocAsync. A
  /// framework passes its own allocator, so that the memory is shared with everything else it runs.
  std::function<std::shared_ptr<std::byte>(std::size_t bytes)> allocate{};
  /// attention_prepared() on another stream than prepare(): called with the memory that prepare()
  /// has got from `allocate`, for allocators that order the reuse of memory behind all streams that
  /// are recorded (record_stream() of torch). Empty: the last owner of the prepared inputs waits on
  /// the host for what other streams do with them.
  std::function<void(const std::shared_ptr<std::byte>& memory)> record_use{};
  /// Called by the calling thread every 50 ms or so while a call computes on the CPU. What it
  /// throws ends the call within a few milliseconds and reaches the caller; the contents of the
  /// output are then unspecified. It may call this library. Empty: nothing interrupts a call.
  std::function<void()> check_interrupt{};
};

/// What the preparation decided for one head, and why.
struct HeadPlan {
  int extra_steps = 0;                 ///< k-steps of residual columns
  bool rotated = false;                ///< by Hadamard, or onto principal axes
  int score_exponent = 0;              ///< scores count 2^score_exponent code units
  float predicted_score_error = 0.0f;  ///< standard deviation, code units, after the plan
};

}  // namespace openvc
