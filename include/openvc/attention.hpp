// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "openvc/options.hpp"
#include "openvc/status.hpp"
#include "openvc/tensor_view.hpp"

// FP8 forward attention, softmax(softmax_scale Q K^T) V.
//
// Shapes are [B, S, H, D] throughout, D a multiple of 8 up to 128. K and V share one shape; Q may
// have another sequence length (cross-attention) and more heads, a multiple of theirs: heads of Q
// that follow each other then share one of K and V (grouped queries). Q, K and V share one element
// type and device. Nothing of the caller is modified. Every function throws openvc::Error before
// any work when an argument cannot be honoured. The numerics are those of docs/numerics.md, the
// same on every backend.
//
// With OPEN_VC_ATTN_CHECK=1 in the environment (read by the first call) every FP8 call looks for
// NaN and infinity in Q, K, V and the output and throws an Error that names the first such tensor
// and element (in Q and the output alone, where CUDA tensors come with a selection of keys).
// Without it, a non-finite element makes its own (batch, head) of the output non-finite and nothing
// else. On CUDA tensors such a call waits for the device, and throws an Error while its stream is
// being captured into a graph.
//
// Backends that have not yet run on hardware (info() names them) are compared with the CPU backend
// by the first call of a process on a device, which throws an Error if they disagree, as does every
// later one, or if its stream is being captured. OPEN_VC_ATTN_SELF_CHECK=0 in the environment skips
// that.

// What a shared library shows: the build hides everything else.
#pragma GCC visibility push(default)
namespace openvc {

/// Quantised Q, K and V: the input of attention_prepared(). Immutable, cheap to copy, reusable by
/// any number of threads. It does not refer to the tensors that it was made from.
///
/// On CUDA devices any stream of the device may use it: a stream other than that of prepare() waits
/// for the preparation. The memory is freed behind everything that has been queued with it,
/// whenever the last copy goes; no stream has to live as long. With Execution::allocate, the stream
/// of prepare() has to, if the allocator needs it.
///
/// CUDA graphs: attention_prepared() may be captured; it waits on the host for the preparation
/// once, and the Prepared has to live as long as the graph. A Prepared that is made while its
/// stream is captured belongs to that graph: it has its contents when the graph has run, uses
/// outside of the capture have to be ordered behind that, and its stream has to live as long as it
/// does.
class Prepared {
 public:
  struct Impl;
  explicit Prepared(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  [[nodiscard]] const Impl& impl() const { return *impl_; }

  [[nodiscard]] std::array<std::int64_t, 4> query_shape() const;  ///< [B, Sq, H, D]
  [[nodiscard]] std::array<std::int64_t, 4> key_shape() const;    ///< [B, Skv, H, D]
  [[nodiscard]] ElementType element_type() const;                 ///< of the inputs and the output
  [[nodiscard]] Device device() const;
  [[nodiscard]] std::vector<HeadPlan> plans() const;  ///< [B * H]
  [[nodiscard]] std::int64_t repair_rows() const;     ///< per head; 0 without repair
  [[nodiscard]] bool has_log_sum_exp() const;
  [[nodiscard]] std::size_t bytes() const;  ///< memory held

 private:
  std::shared_ptr<const Impl> impl_;
};

/// Quantises Q, K and V. `with_log_sum_exp` also keeps what the log-sum-exp needs.
Prepared prepare(const TensorView& q, const TensorView& k, const TensorView& v,
                 const AttentionOptions& options = {}, bool with_log_sum_exp = false,
                 const Execution& execution = {});

/// The same with V residual repair: the quantised residuals of round(budget * Skv) tokens per head,
/// those whose rounding hurts the output most, are added back as extra key/value rows outside the
/// denominator. 0 <= budget < 1; budget 0 equals prepare() bit for bit. Not with a causal mask.
/// (Open-VC, section V repair)
Prepared prepare_repair(const TensorView& q, const TensorView& k, const TensorView& v,
                        double budget, const AttentionOptions& options = {},
                        bool with_log_sum_exp = false, const Execution& execution = {});

/// out [B, Sq, H, D] of the prepared element type, any strides with channel stride 1.
/// log_sum_exp: null, or [B, H, Sq] floats, natural logarithm, -inf for a query that sees no key
/// (whose output is zero), infinite of its sign beyond the range of float; only if the inputs were
/// prepared for it. Neither may overlap the other.
void attention_prepared(const Prepared& prepared, const MutableTensorView& out,
                        float* log_sum_exp = nullptr, const Execution& execution = {});

/// prepare() and attention_prepared() in one call. `out` and log_sum_exp must not overlap an input.
/// Packed sequences are tensors of batch 1, so that log_sum_exp is [H, all queries].
void attention(const TensorView& q, const TensorView& k, const TensorView& v,
               const MutableTensorView& out, float* log_sum_exp = nullptr,
               const AttentionOptions& options = {}, const Execution& execution = {});

/// Throws the Error of attention() for boundaries in host memory that do not fit tensors with so
/// many tokens. For callers whose tensors are on a GPU, where nobody can refuse them.
void check_sequences(const PackedSequences& sequences, std::int64_t queries, std::int64_t keys);

/// Exact attention in float64 for some queries, on CPU tensors: the reference of every error
/// figure.
///
/// out is [B, rows.size(), H, D] contiguous float64, log_sum_exp null or [B, H, rows.size()].
void exact_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                     std::span<const std::int64_t> rows, double* out, double* log_sum_exp = nullptr,
                     Mask mask = Mask::none, std::optional<float> softmax_scale = std::nullopt,
                     const Execution& execution = {});

/// Whether attention(q, k, v) would run, and if not, why and what to do. Looks at types, shapes,
/// strides, devices and options alone: data pointers may be null, and if not must be aligned.
/// Answers for devices that do not exist and on machines without driver, too.
struct Support {
  bool supported = false;
  std::string reason{};                     ///< empty if supported
  ErrorCode code = ErrorCode::unsupported;  ///< of the Error that attention() would throw
  explicit operator bool() const { return supported; }
};
Support is_supported(const TensorView& q, const TensorView& k, const TensorView& v,
                     const AttentionOptions& options = {});

}  // namespace openvc
#pragma GCC visibility pop
