// SPDX-License-Identifier: BSD-3-Clause
#include "backend_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>

#include "openvc/attention.hpp"
#include "openvc/info.hpp"
#include "openvc/inspect.hpp"
#include "study/error_measure.hpp"
#include "study/families.hpp"
#include "study/tensors.hpp"

namespace openvc::cli {
namespace {

using study::Measurement;
using study::OwnedTensor;

// Largest relative L2 errors, about 1.5 times what was measured at the lengths below.
constexpr double kGaussianLimit = 0.08;
constexpr double kOutlierLimit = 0.06;
constexpr double kSingleKeyLimit = 0.01;
constexpr double kLogSumExpLimit = 0.05;  // nats, RMS
/// The tensor core rounds scores after every k-step, the CPU once: a few per cent of the
/// probabilities take the neighbouring code.
constexpr double kBackendDistanceLimit = 0.03;

constexpr std::uint8_t kUnwritten = 0xFF;  // a NaN in every element type

/// Bytes in the memory of a device.
class DeviceBytes {
 public:
  DeviceBytes(std::span<const std::byte> bytes, Device device)
      : device_(device), size_(bytes.size()) {
    if (device.type == DeviceType::cuda) {
      data_ = copy_to_device(bytes, device);
    } else {
      const auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
      data_ = {copy, copy->data()};
    }
  }

  [[nodiscard]] std::byte* data() const { return data_.get(); }

  [[nodiscard]] std::vector<std::byte> read() const {
    if (device_.type == DeviceType::cuda) return copy_to_host(data_.get(), size_, device_);
    return {data_.get(), data_.get() + size_};
  }

 private:
  Device device_;
  std::size_t size_;
  std::shared_ptr<std::byte> data_;
};

enum class Layout { contiguous, fused_projection };

/// A tensor in the memory of a device.
class PlacedTensor {
 public:
  PlacedTensor(const OwnedTensor& tensor, Device device, Layout layout)
      : view_(tensor.view()),
        bytes_(layout == Layout::contiguous ? tensor.bytes : fused(tensor), device) {
    const auto row = static_cast<std::size_t>(view_.shape[kHead] * view_.shape[kChannel]);
    view_.data = bytes_.data();
    view_.device = device;
    if (layout == Layout::contiguous) return;
    view_.data = bytes_.data() + row * element_size(view_.type);
    view_.strides[kBatch] *= kSlices;
    view_.strides[kSequence] *= kSlices;
  }

  [[nodiscard]] const TensorView& view() const { return view_; }

 private:
  static constexpr std::int64_t kSlices = 3;  // q, k and v side by side

  /// The tensor as the middle slice of a fused projection, the other slices full of NaN.
  static std::vector<std::byte> fused(const OwnedTensor& tensor) {
    const auto row = static_cast<std::size_t>(tensor.shape[kHead] * tensor.shape[kChannel]) *
                     element_size(tensor.type);
    std::vector<std::byte> wide(tensor.bytes.size() * kSlices, std::byte{kUnwritten});
    for (std::size_t at = 0; at < tensor.bytes.size(); at += row) {
      std::memcpy(wide.data() + at * kSlices + row, tensor.bytes.data() + at, row);
    }
    return wide;
  }

  TensorView view_;
  DeviceBytes bytes_;
};

struct CallResult {
  OwnedTensor out;
  std::vector<float> log_sum_exp;
};

class BackendCheck {
 public:
  BackendCheck(const CheckTarget& target, const study::SelfCheckOptions& options)
      : target_(target), options_(options) {
    execution_.threads = options.threads;
  }

  std::vector<study::CheckResult> run() {
    add("cross-attention", [&] { return check_error(gaussian(), {}, kGaussianLimit); });
    add("float16", [&] {
      return check_error(inputs("gaussian", queries(), keys(), ElementType::float16), {},
                         kGaussianLimit);
    });
    add("outlier channels",
        [&] { return check_error(inputs("channel_outliers", keys(), keys()), {}, kOutlierLimit); });
    add("causal, fewer queries than keys", [&] {
      AttentionOptions options;
      options.mask = Mask::causal;
      return check_error(gaussian(), options, kGaussianLimit);
    });
    add("one query, one key",
        [&] { return check_error(inputs("gaussian", 1, 1), {}, kSingleKeyLimit); });
    add("log-sum-exp", [&] { return check_log_sum_exp(); });
    add("1 % of V repaired", [&] { return check_repair(); });
    add("slices of a fused projection", [&] {
      const study::Tensors in = gaussian();
      return compare_bytes(call(in), call(in, {}, Layout::fused_projection));
    });
    add("runs repeat", [&] {
      const study::Tensors in = gaussian();
      return compare_bytes(call(in), call(in));
    });
    if (target_.device.type != DeviceType::cpu) {
      add("distance from the CPU backend", [&] { return check_distance(); });
    }
    return std::move(results_);
  }

 private:
  template <class Check>
  void add(std::string name, const Check& check) {
    study::CheckResult result;
    try {
      result.value = check();
      result.passed = result.value.measured <= result.value.limit;  // NaN fails, too
    } catch (const std::exception& failure) {
      result.value.measured = std::numeric_limits<double>::quiet_NaN();
      result.value.meaning = failure.what();
    }
    result.group = "call";
    result.name = std::move(name);
    if (options_.finished) options_.finished(result);
    results_.push_back(std::move(result));
  }

  // Multiples of no block, so that the padding is part of every check.
  [[nodiscard]] std::int64_t queries() const { return options_.smoke ? 131 : 1'031; }
  [[nodiscard]] std::int64_t keys() const { return options_.smoke ? 333 : 2'077; }

  [[nodiscard]] study::Tensors inputs(std::string_view family, std::int64_t queries,
                                      std::int64_t keys,
                                      ElementType type = ElementType::bfloat16) const {
    constexpr std::int64_t kBatch = 2;
    constexpr std::int64_t kHeads = 3;
    constexpr std::uint64_t kSeed = 7;
    return study::generate(family, {kBatch, queries, keys, kHeads}, type, kSeed, options_.threads);
  }
  [[nodiscard]] study::Tensors gaussian() const { return inputs("gaussian", queries(), keys()); }

  [[nodiscard]] CallResult call(const study::Tensors& in, const AttentionOptions& options = {},
                                Layout layout = Layout::contiguous, double budget = 0.0) const {
    return call_on(target_.device, in, options, layout, budget);
  }

  [[nodiscard]] CallResult call_on(Device device, const study::Tensors& in,
                                   const AttentionOptions& options, Layout layout,
                                   double budget) const {
    const PlacedTensor q(in.q, device, layout);
    const PlacedTensor k(in.k, device, layout);
    const PlacedTensor v(in.v, device, layout);
    CallResult result{OwnedTensor(in.q.type, in.q.shape), {}};
    std::fill(result.out.bytes.begin(), result.out.bytes.end(), std::byte{kUnwritten});
    result.log_sum_exp.assign(rows_of(in), std::numeric_limits<float>::quiet_NaN());
    const DeviceBytes out(result.out.bytes, device);
    const DeviceBytes log_sum_exp(std::as_bytes(std::span(result.log_sum_exp)), device);
    MutableTensorView out_view = result.out.mutable_view();
    out_view.data = out.data();
    out_view.device = device;
    attention_prepared(
        prepare_repair(q.view(), k.view(), v.view(), budget, options, true, execution_), out_view,
        reinterpret_cast<float*>(log_sum_exp.data()), execution_);
    result.out.bytes = out.read();
    const std::vector<std::byte> logs = log_sum_exp.read();
    std::memcpy(result.log_sum_exp.data(), logs.data(), logs.size());
    return result;
  }

  static std::size_t rows_of(const study::Tensors& in) {
    return static_cast<std::size_t>(in.q.shape[kBatch] * in.q.shape[kSequence] * in.q.shape[kHead]);
  }

  [[nodiscard]] std::vector<double> exact(const study::Tensors& in, Mask mask,
                                          double* log_sum_exp = nullptr) const {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(in.q.shape[kSequence]));
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    std::vector<double> out(in.q.bytes.size() / element_size(in.q.type));
    exact_attention(in.q.view(), in.k.view(), in.v.view(), rows, out.data(), log_sum_exp, mask,
                    std::nullopt, execution_);
    return out;
  }

  static std::vector<double> values(const OwnedTensor& tensor) {
    std::vector<double> all(tensor.bytes.size() / element_size(tensor.type));
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = study::load_element(tensor.bytes.data(), tensor.type, static_cast<std::int64_t>(i));
    }
    return all;
  }

  static double relative_error(const CallResult& result, std::span<const double> truth) {
    return study::measure_error(values(result.out), truth).relative_l2();
  }

  [[nodiscard]] Measurement check_error(const study::Tensors& in, const AttentionOptions& options,
                                        double limit) const {
    return {.measured = relative_error(call(in, options), exact(in, options.mask)),
            .limit = limit,
            .meaning = "relative L2 error"};
  }

  [[nodiscard]] Measurement check_log_sum_exp() const {
    const study::Tensors in = inputs("video_field", queries(), keys());
    std::vector<double> difference(rows_of(in));
    static_cast<void>(exact(in, Mask::none, difference.data()));
    const CallResult result = call(in);
    for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= result.log_sum_exp[i];
    return {.measured = study::root_mean_square(difference),
            .limit = kLogSumExpLimit,
            .meaning = "RMS error in nats"};
  }

  [[nodiscard]] Measurement check_repair() const {
    constexpr double kBudget = 0.01;
    const study::Tensors in = inputs("v_outlier_tokens", queries(), keys());
    const std::vector<double> truth = exact(in, Mask::none);
    const CallResult repaired = call(in, {}, Layout::contiguous, kBudget);
    return {.measured = relative_error(repaired, truth) / relative_error(call(in), truth),
            .limit = 1.0,
            .meaning = "error relative to the one without repair"};
  }

  /// Share of bytes that differ.
  static Measurement compare_bytes(const CallResult& a, const CallResult& b) {
    std::size_t differing = 0;
    for (std::size_t i = 0; i < a.out.bytes.size(); ++i) {
      differing += a.out.bytes[i] != b.out.bytes[i] ? 1 : 0;
    }
    return {.measured = static_cast<double>(differing) / static_cast<double>(a.out.bytes.size()),
            .limit = 0.0,
            .meaning = "share of output bytes that differ"};
  }

  [[nodiscard]] Measurement check_distance() const {
    const study::Tensors in = gaussian();
    const CallResult on_cpu = call_on({}, in, {}, Layout::contiguous, 0.0);
    return {.measured = relative_error(call(in), values(on_cpu.out)),
            .limit = kBackendDistanceLimit,
            .meaning = "relative L2 distance"};
  }

  const CheckTarget& target_;
  const study::SelfCheckOptions& options_;
  Execution execution_;
  std::vector<study::CheckResult> results_;
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

std::vector<study::CheckResult> check_backend(const CheckTarget& target,
                                              const study::SelfCheckOptions& options) {
  return BackendCheck(target, options).run();
}

}  // namespace openvc::cli
