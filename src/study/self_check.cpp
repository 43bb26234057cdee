// SPDX-License-Identifier: BSD-3-Clause
#include "study/self_check.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <string_view>
#include <utility>

#include "openvc/attention.hpp"
#include "openvc/info.hpp"
#include "study/check_call.hpp"
#include "study/codec_check.hpp"
#include "study/error_measure.hpp"
#include "study/families.hpp"
#include "study/tensors.hpp"

namespace openvc::study {
namespace {

// The largest relative L2 errors, about 1.5 times what was measured at the lengths below.
constexpr double kGaussianLimit = 0.08;
constexpr double kOutlierLimit = 0.06;
constexpr double kSingleKeyLimit = 0.01;
constexpr double kLogSumExpLimit = 0.05;  // nats, RMS
/// The tensor core rounds scores after every k-step, the CPU once: a few per cent of the
/// probabilities take the neighbouring code.
constexpr double kBackendDistanceLimit = 0.03;

struct FamilyLimit {
  std::string_view family;
  double relative_l2;
};
constexpr FamilyLimit kFamilyLimits[] = {
    {"gaussian", kGaussianLimit}, {"video_field", 0.03},  {"channel_outliers", kOutlierLimit},
    {"sink_token", 0.06},         {"near_one_hot", 0.15}, {"v_outlier_tokens", 0.08},
    {"constant_rows", 0.005},
};

/// At the limits of the element types the softmax picks single keys, and which one is decided by
/// the last bits of Q and K: only that the output is a number can be asked.
constexpr std::string_view kExtremeFamilies[] = {"large_logits", "tiny_values", "huge_values"};

class SelfCheck {
 public:
  SelfCheck(const CheckTarget& target, const SelfCheckOptions& options)
      : target_(target), options_(options) {}

  std::vector<CheckResult> run() {
    // The numerics and the shared parts of the library are those of the CPU.
    if (on_cpu()) check_library();
    check_calls();
    return std::move(results_);
  }

 private:
  void check_library() {
    add("codec", "E4M3 codes survive a round trip", codec_round_trip);
    add("codec", "E4M3 rounds to nearest even", codec_rounding);
    add("codec", "ExpCast against exponentiate-then-round", exp_cast_disagreement);
    for (const FamilyLimit& limit : kFamilyLimits) {
      add("accuracy", std::string(limit.family),
          [&] { return check_error(square(limit.family), limit.relative_l2, call()); });
    }
    for (const std::string_view family : kExtremeFamilies) {
      add("accuracy", std::string(family), [&] { return check_finite(family); });
    }
    add("accuracy", "causal mask",
        [&] { return check_error(square("gaussian"), kGaussianLimit, causal()); });
    add("identity", "any number of threads", [&] {
      CheckCall single = call();
      single.threads = 1;
      CheckCall several = call();
      several.threads = 3;
      return compare(square("channel_outliers"), single, several);
    });
    add("identity", "prepared call, repair of nothing",
        [&] { return compare(square("video_field"), call(), complete_call()); });
    add("identity", "each batch entry by itself", [&] { return check_batch(); });
  }

  void check_calls() {
    add("call", "cross-attention", [&] { return check_error(gaussian(), kGaussianLimit, call()); });
    add("call", "float16", [&] {
      return check_error(inputs("gaussian", queries(), keys(), ElementType::float16),
                         kGaussianLimit, call());
    });
    add("call", "outlier channels", [&] {
      return check_error(inputs("channel_outliers", keys(), keys()), kOutlierLimit, call());
    });
    add("call", "causal, fewer queries than keys",
        [&] { return check_error(gaussian(), kGaussianLimit, causal()); });
    add("call", "one query, one key",
        [&] { return check_error(inputs("gaussian", 1, 1), kSingleKeyLimit, call()); });
    add("call", "log-sum-exp", [&] { return check_log_sum_exp(); });
    add("call", "1 % of V repaired", [&] { return check_repair(); });
    add("call", "slices of a fused projection", [&] {
      CheckCall slices = call();
      slices.layout = CheckLayout::fused_projection;
      return compare(gaussian(), call(), slices);
    });
    add("call", "runs repeat", [&] { return compare(gaussian(), call(), call()); });
    if (!on_cpu()) add("call", "distance from the CPU backend", [&] { return check_distance(); });
  }

  template <class Check>
  void add(std::string group, std::string name, const Check& check) {
    CheckResult result;
    try {
      result.value = check();
      result.passed = result.value.measured <= result.value.limit;  // NaN fails, too
    } catch (const std::exception& failure) {
      result.value.measured = std::numeric_limits<double>::quiet_NaN();
      result.value.meaning = failure.what();
    }
    result.group = std::move(group);
    result.name = std::move(name);
    if (options_.finished) options_.finished(result);
    results_.push_back(std::move(result));
  }

  [[nodiscard]] bool on_cpu() const { return target_.device.type == DeviceType::cpu; }

  // Multiples of no block, so that the padding is part of every check.
  [[nodiscard]] std::int64_t queries() const { return options_.smoke ? 131 : 1'031; }
  [[nodiscard]] std::int64_t keys() const { return options_.smoke ? 333 : 2'077; }

  [[nodiscard]] Tensors inputs(std::string_view family, std::int64_t queries, std::int64_t keys,
                               ElementType type = ElementType::bfloat16) const {
    constexpr std::int64_t kBatch = 2;
    constexpr std::int64_t kHeads = 3;
    constexpr std::uint64_t kSeed = 7;
    return generate(family, {kBatch, queries, keys, kHeads}, type, kSeed, options_.threads);
  }
  [[nodiscard]] Tensors gaussian() const { return inputs("gaussian", queries(), keys()); }

  /// Self-attention, for the checks of the library.
  [[nodiscard]] Tensors square(std::string_view family, std::int64_t batch = 1) const {
    constexpr std::int64_t kHeads = 2;
    constexpr std::uint64_t kSeed = 1;
    return generate(family, {batch, keys(), keys(), kHeads}, ElementType::bfloat16, kSeed,
                    options_.threads);
  }

  [[nodiscard]] CheckCall call() const {
    CheckCall call;
    call.device = target_.device;
    call.threads = options_.threads;
    return call;
  }
  [[nodiscard]] CheckCall causal() const {
    CheckCall causal = call();
    causal.options.mask = Mask::causal;
    return causal;
  }
  [[nodiscard]] CheckCall complete_call() const {
    CheckCall complete = call();
    complete.prepared = false;
    return complete;
  }

  [[nodiscard]] Measurement check_error(const Tensors& in, double limit,
                                        const CheckCall& call) const {
    return {.measured = relative_error(run_call(in, call),
                                       exact_output(in, call.options.mask, options_.threads)),
            .limit = limit,
            .meaning = "relative L2 error"};
  }

  static Measurement compare_bytes(const OwnedTensor& a, const OwnedTensor& b) {
    return {.measured = differing_share(a, b),
            .limit = 0.0,
            .meaning = "share of output bytes that differ"};
  }
  static Measurement compare(const Tensors& in, const CheckCall& a, const CheckCall& b) {
    return compare_bytes(run_call(in, a).out, run_call(in, b).out);
  }

  [[nodiscard]] Measurement check_finite(std::string_view family) const {
    std::int64_t wrong = 0;
    const std::vector<double> values = values_of(run_call(square(family), call()).out);
    for (const double value : values) wrong += std::isfinite(value) ? 0 : 1;
    return {.measured = static_cast<double>(wrong) / static_cast<double>(values.size()),
            .limit = 0.0,
            .meaning = "share of outputs that are not finite"};
  }

  [[nodiscard]] Measurement check_log_sum_exp() const {
    const Tensors in = inputs("video_field", queries(), keys());
    std::vector<double> difference(row_count(in));
    static_cast<void>(exact_output(in, Mask::none, options_.threads, difference.data()));
    const CheckOutput result = run_call(in, call());
    for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= result.log_sum_exp[i];
    return {.measured = root_mean_square(difference),
            .limit = kLogSumExpLimit,
            .meaning = "RMS error in nats"};
  }

  [[nodiscard]] Measurement check_repair() const {
    const Tensors in = inputs("v_outlier_tokens", queries(), keys());
    const std::vector<double> truth = exact_output(in, Mask::none, options_.threads);
    CheckCall repaired = call();
    repaired.budget = 0.01;
    return {.measured = relative_error(run_call(in, repaired), truth) /
                        relative_error(run_call(in, call()), truth),
            .limit = 1.0,
            .meaning = "error relative to the one without repair"};
  }

  [[nodiscard]] Measurement check_batch() const {
    constexpr std::int64_t kBatchSize = 2;
    const Tensors in = square("sink_token", kBatchSize);
    const OwnedTensor together = run_call(in, call()).out;
    OwnedTensor apart(in.q.type, in.q.shape);
    Execution execution;
    execution.threads = options_.threads;
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
                execution);
    }
    return compare_bytes(together, apart);
  }

  [[nodiscard]] Measurement check_distance() const {
    const Tensors in = gaussian();
    CheckCall on_cpu = call();
    on_cpu.device = Device{};
    return {.measured = relative_error(run_call(in, call()), values_of(run_call(in, on_cpu).out)),
            .limit = kBackendDistanceLimit,
            .meaning = "relative L2 distance"};
  }

  const CheckTarget& target_;
  const SelfCheckOptions& options_;
  std::vector<CheckResult> results_;
};

}  // namespace

std::string CheckTarget::label() const {
  if (device.type == DeviceType::cpu) return backend;
  return fmt::format("{}cuda:{} ({})", backend.empty() ? "" : backend + " on ", device.index,
                     device_name);
}

std::vector<CheckTarget> check_targets() {
  const Info build = info();
  std::vector<CheckTarget> targets = {{.backend = "cpu"}};
  for (const CudaDeviceInfo& device : build.cuda.devices) {
    targets.push_back({.backend = device.backend,
                       .device = {DeviceType::cuda, device.index},
                       .device_name = device.name,
                       .refusal = device.refusal});
  }
  return targets;
}

std::vector<CheckResult> run_self_check(const CheckTarget& target,
                                        const SelfCheckOptions& options) {
  return SelfCheck(target, options).run();
}

}  // namespace openvc::study
