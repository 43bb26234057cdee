// SPDX-License-Identifier: BSD-3-Clause
#include "study/check_call.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>

#include "openvc/inspect.hpp"
#include "study/error_measure.hpp"

namespace openvc::study {
namespace {

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

/// A tensor in the memory of a device.
class PlacedTensor {
 public:
  PlacedTensor(const OwnedTensor& tensor, Device device, CheckLayout layout)
      : view_(tensor.view()),
        bytes_(layout == CheckLayout::contiguous ? tensor.bytes : fused(tensor), device) {
    const auto row = static_cast<std::size_t>(view_.shape[kHead] * view_.shape[kChannel]);
    view_.data = bytes_.data();
    view_.device = device;
    if (layout == CheckLayout::contiguous) return;
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

Execution with_threads(int threads) {
  Execution execution;
  execution.threads = threads;
  return execution;
}

}  // namespace

std::size_t row_count(const Tensors& in) {
  return static_cast<std::size_t>(in.q.shape[kBatch] * in.q.shape[kSequence] * in.q.shape[kHead]);
}

CheckOutput run_call(const Tensors& in, const CheckCall& call) {
  const PlacedTensor q(in.q, call.device, call.layout);
  const PlacedTensor k(in.k, call.device, call.layout);
  const PlacedTensor v(in.v, call.device, call.layout);
  CheckOutput result{OwnedTensor(in.q.type, in.q.shape), {}};
  std::fill(result.out.bytes.begin(), result.out.bytes.end(), std::byte{kUnwritten});
  result.log_sum_exp.assign(row_count(in), std::numeric_limits<float>::quiet_NaN());
  const DeviceBytes out(result.out.bytes, call.device);
  const DeviceBytes log_sum_exp(std::as_bytes(std::span(result.log_sum_exp)), call.device);
  MutableTensorView out_view = result.out.mutable_view();
  out_view.data = out.data();
  out_view.device = call.device;
  auto* const lse = reinterpret_cast<float*>(log_sum_exp.data());
  const Execution execution = with_threads(call.threads);
  if (call.prepared) {
    attention_prepared(
        prepare_repair(q.view(), k.view(), v.view(), call.budget, call.options, true, execution),
        out_view, lse, execution);
  } else {
    attention(q.view(), k.view(), v.view(), out_view, lse, call.options, execution);
  }
  result.out.bytes = out.read();
  const std::vector<std::byte> logs = log_sum_exp.read();
  std::memcpy(result.log_sum_exp.data(), logs.data(), logs.size());
  return result;
}

std::vector<double> exact_output(const Tensors& in, Mask mask, int threads, double* log_sum_exp) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(in.q.shape[kSequence]));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  std::vector<double> out(in.q.bytes.size() / element_size(in.q.type));
  exact_attention(in.q.view(), in.k.view(), in.v.view(), rows, out.data(), log_sum_exp, mask,
                  std::nullopt, with_threads(threads));
  return out;
}

std::vector<double> values_of(const OwnedTensor& tensor) {
  std::vector<double> all(tensor.bytes.size() / element_size(tensor.type));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = load_element(tensor.bytes.data(), tensor.type, static_cast<std::int64_t>(i));
  }
  return all;
}

double relative_error(const CheckOutput& output, std::span<const double> truth) {
  return measure_error(values_of(output.out), truth).relative_l2();
}

double differing_share(const OwnedTensor& a, const OwnedTensor& b) {
  std::size_t differing = 0;
  for (std::size_t i = 0; i < a.bytes.size(); ++i) differing += a.bytes[i] != b.bytes[i] ? 1 : 0;
  return static_cast<double>(differing) / static_cast<double>(a.bytes.size());
}

}  // namespace openvc::study
