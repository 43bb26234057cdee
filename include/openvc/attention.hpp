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

#include "openvc/status.hpp"
#include "openvc/tensor_view.hpp"

// FP8 forward attention, softmax(softmax_scale Q K^T) V.
//
// Shapes are [B, S, H, D] throughout, D = 128. K and V share one shape; Q may have another sequence
// length (cross-attention). Q, K and V share one element type and device. Nothing of the caller is
// modified. Every function throws openvc::Error before any work when an argument cannot be honoured.
// The numerics are those of docs/numerics.md, the same on every backend.
namespace openvc {

enum class Mask : std::uint8_t {
  none,
  causal,  ///< aligned to the bottom right: query i sees the keys j <= i + Skv - Sq
};

/// Order in which key blocks are visited. It moves the points where rows are rescaled, hence a few
/// bits of the result, and how often that happens.
enum class KeyOrder : std::uint8_t {
  mid_window,  ///< from just right of the query's own position down to 0, then the rest
  descending,  ///< from the last key to the first (always used with a causal mask)
};

/// A decision that the preparation can take per head from its statistics.
enum class Choice : std::uint8_t { never, automatic, always };

enum class ValueScale : std::uint8_t { per_channel, per_head };

/// Where the error budget goes. The defaults are those that docs/numerics.md derives.
struct NumericOptions {
  /// Subtract the token mean of K; the softmax does not change (SageAttention2, VC-Attention).
  bool smooth_keys = true;
  /// Hadamard rotation of Q and K (VC-Attention). Heads that get residual columns are not rotated.
  Choice rotation = Choice::automatic;
  /// Upper limit of extra k-steps of QK residual columns per head: 0, 1, 2 or 4. Each costs 12.5 %
  /// of the matrix products of the heads that use it.
  int max_extra_steps = 2;
  /// Standard deviation of a head's scores that the plan tolerates, in code units (1/8 octave).
  float score_error_target = 0.5f;
  /// Follow E4M3's subnormals in the tail of ExpCast. Costs about 6 % of a head's time.
  Choice tail_correction = Choice::automatic;
  /// Remove the token mean of every channel of V before rounding and add it back to the output.
  bool centre_values = true;
  ValueScale value_scale = ValueScale::per_channel;
};

struct AttentionOptions {
  Mask mask = Mask::none;
  /// Factor of q.k; 1/sqrt(D) if empty. Must be finite and > 0.
  std::optional<float> softmax_scale;
  KeyOrder key_order = KeyOrder::mid_window;
  NumericOptions numerics{};
};

/// How a call runs; never changes its result.
struct Execution {
  int threads = 0;         ///< CPU threads; 0 uses all that the process may use
  void* stream = nullptr;  ///< cudaStream_t for CUDA tensors
};

/// What the preparation decided for one head, and why.
struct HeadPlan {
  int extra_steps = 0;              ///< k-steps of residual columns
  bool rotated = false;             ///< Hadamard rotation
  bool tail_correction = false;
  int score_exponent = 0;           ///< scores count 2^score_exponent code units
  float predicted_score_error = 0;  ///< standard deviation, code units, after the plan
  float predicted_flush = 0;        ///< softmax mass that plain ExpCast would lose, 0..1
};

/// Quantised Q, K and V: the input of attention_prepared(). Immutable, cheap to copy, reusable by
/// any number of threads. It does not refer to the tensors that it was made from.
class Prepared {
 public:
  struct Impl;
  explicit Prepared(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  [[nodiscard]] const Impl& impl() const { return *impl_; }

  [[nodiscard]] std::array<std::int64_t, 4> query_shape() const;  ///< [B, Sq, H, D]
  [[nodiscard]] std::array<std::int64_t, 4> key_shape() const;    ///< [B, Skv, H, D]
  [[nodiscard]] ElementType element_type() const;                 ///< of the inputs and the output
  [[nodiscard]] Device device() const;
  [[nodiscard]] std::vector<HeadPlan> plans() const;              ///< [B * H]
  [[nodiscard]] std::int64_t repair_rows() const;                 ///< per head; 0 without repair
  [[nodiscard]] bool has_log_sum_exp() const;
  [[nodiscard]] std::size_t bytes() const;                        ///< memory held

 private:
  std::shared_ptr<const Impl> impl_;
};

/// Quantises Q, K and V. `with_log_sum_exp` also keeps what the log-sum-exp needs.
Prepared prepare(const TensorView& q, const TensorView& k, const TensorView& v,
                 const AttentionOptions& options = {}, bool with_log_sum_exp = false,
                 const Execution& execution = {});

/// The same with V residual repair: the quantised residuals of round(budget * Skv) tokens per head,
/// those whose rounding hurts the output most, are added back as extra key/value rows outside the
/// denominator. 0 <= budget < 1; budget 0 equals prepare() bit for bit. (Open-VC, section V repair)
Prepared prepare_repair(const TensorView& q, const TensorView& k, const TensorView& v, double budget,
                        const AttentionOptions& options = {}, bool with_log_sum_exp = false,
                        const Execution& execution = {});

/// out [B, Sq, H, D] of the prepared element type, any strides with channel stride 1.
/// log_sum_exp: null, or [B, H, Sq] floats, natural logarithm, -inf for a query that sees no key
/// (whose output is zero); only if the inputs were prepared for it.
void attention_prepared(const Prepared& prepared, const MutableTensorView& out,
                        float* log_sum_exp = nullptr, const Execution& execution = {});

/// prepare() and attention_prepared() in one call.
void attention(const TensorView& q, const TensorView& k, const TensorView& v,
               const MutableTensorView& out, float* log_sum_exp = nullptr,
               const AttentionOptions& options = {}, const Execution& execution = {});

/// Exact attention in float64 for some queries, on CPU tensors: the yardstick of every error figure.
///
/// out is [B, rows.size(), H, D] contiguous float64, log_sum_exp null or [B, H, rows.size()].
void exact_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                     std::span<const std::int64_t> rows, double* out, double* log_sum_exp = nullptr,
                     Mask mask = Mask::none, std::optional<float> softmax_scale = std::nullopt,
                     const Execution& execution = {});

/// Whether attention(q, k, v) would run, and if not, why and what to do.
struct Support {
  bool supported = false;
  std::string reason;  ///< empty if supported
  explicit operator bool() const { return supported; }
};
Support is_supported(const TensorView& q, const TensorView& k, const TensorView& v,
                     const AttentionOptions& options = {});

}  // namespace openvc
