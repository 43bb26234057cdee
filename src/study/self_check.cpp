// SPDX-License-Identifier: BSD-3-Clause
#include "study/self_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>

#include "numerics/contract.hpp"
#include "openvc/attention.hpp"
#include "study/codec_check.hpp"
#include "study/error_measure.hpp"
#include "study/families.hpp"
#include "study/tensors.hpp"

namespace openvc::study {
namespace {

using numerics::kHeadDim;

/// Largest relative L2 error that a family may have, about 1.5 times what was measured at the
/// sequence lengths below.
struct FamilyLimit {
  std::string_view family;
  double relative_l2;
};
constexpr FamilyLimit kFamilyLimits[] = {
    {"gaussian", 0.08},       {"video_field", 0.03},  {"channel_outliers", 0.055},
    {"sink_token", 0.06},     {"near_one_hot", 0.15}, {"v_outlier_tokens", 0.08},
    {"constant_rows", 0.005},
};

/// At the limits of the element types the softmax picks single keys, and which one is decided by
/// the last bits of Q and K: only that the output is a number can be asked.
constexpr std::string_view kExtremeFamilies[] = {"large_logits", "tiny_values", "huge_values"};

constexpr double kLogSumExpLimit = 0.05;  // nats, RMS

class SelfCheck {
 public:
  explicit SelfCheck(const SelfCheckOptions& options) : options_(options) {}

  std::vector<CheckResult> run() {
    add("codec", "E4M3 codes survive a round trip", codec_round_trip);
    add("codec", "E4M3 rounds to nearest even", codec_rounding);
    add("codec", "ExpCast against exponentiate-then-round", exp_cast_disagreement);
    for (const FamilyLimit& limit : kFamilyLimits) {
      add("accuracy", std::string(limit.family), [&] { return check_family(limit); });
    }
    for (const std::string_view family : kExtremeFamilies) {
      add("accuracy", std::string(family), [&] { return check_finite(family); });
    }
    add("accuracy", "causal mask", [&] { return check_causal(); });
    add("accuracy", "log-sum-exp", [&] { return check_log_sum_exp(); });
    add("accuracy", "1 % of V repaired", [&] { return check_repair(); });
    add("identity", "any number of threads", [&] { return check_threads(); });
    add("identity", "prepared call", [&] { return check_prepared(); });
    add("identity", "repair of nothing", [&] { return check_empty_repair(); });
    add("identity", "each batch entry by itself", [&] { return check_batch(); });
    return std::move(results_);
  }

 private:
  template <class Check>
  void add(std::string group, std::string name, const Check& check) {
    CheckResult result;
    try {
      result.value = check();
      // NaN fails, too.
      result.passed = result.value.measured <= result.value.limit;
    } catch (const std::exception& failure) {
      result.value.measured = std::numeric_limits<double>::quiet_NaN();
      result.value.meaning = failure.what();
    }
    result.group = std::move(group);
    result.name = std::move(name);
    if (options_.finished) options_.finished(result);
    results_.push_back(std::move(result));
  }

  /// Not a multiple of any block, so that the padding is part of every check.
  [[nodiscard]] std::int64_t tokens() const { return options_.smoke ? 333 : 2'077; }

  [[nodiscard]] Tensors inputs(std::string_view family, std::int64_t batch = 1) const {
    constexpr std::int64_t kHeads = 2;
    constexpr std::uint64_t kSeed = 1;
    return generate(family, {batch, tokens(), tokens(), kHeads}, ElementType::bfloat16, kSeed,
                    options_.threads);
  }

  static Execution with_threads(int threads) {
    Execution execution;
    execution.threads = threads;
    return execution;
  }
  [[nodiscard]] Execution execution() const { return with_threads(options_.threads); }

  [[nodiscard]] OwnedTensor attend(const Tensors& in, const AttentionOptions& options = {},
                                   float* log_sum_exp = nullptr) const {
    OwnedTensor out(in.q.type, in.q.shape);
    attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view(), log_sum_exp, options,
              execution());
    return out;
  }

  /// Exact output for all queries, [B, S, H, D].
  [[nodiscard]] std::vector<double> exact(const Tensors& in, Mask mask,
                                          double* log_sum_exp = nullptr) const {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(in.q.shape[kSequence]));
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    std::vector<double> out(in.q.bytes.size() / element_size(in.q.type));
    exact_attention(in.q.view(), in.k.view(), in.v.view(), rows, out.data(), log_sum_exp, mask,
                    std::nullopt, execution());
    return out;
  }

  static double relative_error(const OwnedTensor& out, std::span<const double> truth) {
    std::vector<double> values(truth.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = load_element(out.bytes.data(), out.type, static_cast<std::int64_t>(i));
    }
    return measure_error(values, truth).relative_l2();
  }

  /// Share of bytes that differ.
  static Measurement compare_bytes(const OwnedTensor& a, const OwnedTensor& b) {
    std::size_t differing = 0;
    for (std::size_t i = 0; i < a.bytes.size(); ++i) differing += a.bytes[i] != b.bytes[i] ? 1 : 0;
    return {.measured = static_cast<double>(differing) / static_cast<double>(a.bytes.size()),
            .limit = 0.0,
            .meaning = "share of output bytes that differ"};
  }

  [[nodiscard]] Measurement check_family(const FamilyLimit& limit) const {
    const Tensors in = inputs(limit.family);
    return {.measured = relative_error(attend(in), exact(in, Mask::none)),
            .limit = limit.relative_l2,
            .meaning = "relative L2 error"};
  }

  [[nodiscard]] Measurement check_finite(std::string_view family) const {
    const OwnedTensor out = attend(inputs(family));
    std::int64_t wrong = 0;
    const auto count = static_cast<std::int64_t>(out.bytes.size() / element_size(out.type));
    for (std::int64_t i = 0; i < count; ++i) {
      if (!std::isfinite(load_element(out.bytes.data(), out.type, i))) ++wrong;
    }
    return {.measured = static_cast<double>(wrong) / static_cast<double>(count),
            .limit = 0.0,
            .meaning = "share of outputs that are not finite"};
  }

  [[nodiscard]] Measurement check_causal() const {
    constexpr double kLimit = 0.08;
    const Tensors in = inputs("gaussian");
    AttentionOptions options;
    options.mask = Mask::causal;
    return {.measured = relative_error(attend(in, options), exact(in, Mask::causal)),
            .limit = kLimit,
            .meaning = "relative L2 error"};
  }

  [[nodiscard]] Measurement check_log_sum_exp() const {
    const Tensors in = inputs("video_field");
    const auto count = static_cast<std::size_t>(in.q.shape[kSequence] * in.q.shape[kHead]);
    std::vector<float> found(count);
    std::vector<double> truth(count);
    static_cast<void>(attend(in, {}, found.data()));
    static_cast<void>(exact(in, Mask::none, truth.data()));
    for (std::size_t i = 0; i < count; ++i) truth[i] -= found[i];
    return {.measured = root_mean_square(truth),
            .limit = kLogSumExpLimit,
            .meaning = "RMS error in nats"};
  }

  [[nodiscard]] Measurement check_repair() const {
    constexpr double kBudget = 0.01;
    const Tensors in = inputs("v_outlier_tokens");
    const std::vector<double> truth = exact(in, Mask::none);
    const double plain = relative_error(attend(in), truth);
    const Prepared prepared =
        prepare_repair(in.q.view(), in.k.view(), in.v.view(), kBudget, {}, false, execution());
    OwnedTensor out(in.q.type, in.q.shape);
    attention_prepared(prepared, out.mutable_view(), nullptr, execution());
    return {.measured = relative_error(out, truth) / plain,
            .limit = 1.0,
            .meaning = "error relative to the one without repair"};
  }

  [[nodiscard]] Measurement check_threads() const {
    const Tensors in = inputs("channel_outliers");
    OwnedTensor single(in.q.type, in.q.shape);
    OwnedTensor several(in.q.type, in.q.shape);
    attention(in.q.view(), in.k.view(), in.v.view(), single.mutable_view(), nullptr, {},
              with_threads(1));
    attention(in.q.view(), in.k.view(), in.v.view(), several.mutable_view(), nullptr, {},
              with_threads(3));
    return compare_bytes(single, several);
  }

  [[nodiscard]] Measurement check_prepared() const {
    const Tensors in = inputs("video_field");
    OwnedTensor out(in.q.type, in.q.shape);
    attention_prepared(prepare(in.q.view(), in.k.view(), in.v.view(), {}, false, execution()),
                       out.mutable_view(), nullptr, execution());
    return compare_bytes(attend(in), out);
  }

  [[nodiscard]] Measurement check_empty_repair() const {
    const Tensors in = inputs("video_field");
    OwnedTensor out(in.q.type, in.q.shape);
    attention_prepared(
        prepare_repair(in.q.view(), in.k.view(), in.v.view(), 0.0, {}, false, execution()),
        out.mutable_view(), nullptr, execution());
    return compare_bytes(attend(in), out);
  }

  [[nodiscard]] Measurement check_batch() const {
    constexpr std::int64_t kBatchSize = 2;
    const Tensors in = inputs("sink_token", kBatchSize);
    const OwnedTensor together = attend(in);
    OwnedTensor apart(in.q.type, in.q.shape);
    for (std::int64_t b = 0; b < kBatchSize; ++b) {
      const auto entry = [b](TensorView view) {
        view.data = static_cast<const std::byte*>(view.data) +
                    view.offset(b, 0, 0) * static_cast<std::int64_t>(element_size(view.type));
        view.shape[kBatch] = 1;
        return view;
      };
      MutableTensorView out = apart.mutable_view();
      out.data = static_cast<std::byte*>(out.data) +
                 out.view().offset(b, 0, 0) * static_cast<std::int64_t>(element_size(out.type));
      out.shape[kBatch] = 1;
      attention(entry(in.q.view()), entry(in.k.view()), entry(in.v.view()), out, nullptr, {},
                execution());
    }
    return compare_bytes(together, apart);
  }

  const SelfCheckOptions& options_;
  std::vector<CheckResult> results_;
};

}  // namespace

std::vector<CheckResult> run_self_check(const SelfCheckOptions& options) {
  return SelfCheck(options).run();
}

}  // namespace openvc::study
