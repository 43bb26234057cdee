// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "gpu/device_buffer.hpp"
#include "openvc/tensor_view.hpp"
#include "unit/cpu/test_tensor.hpp"

// Tensors in the memory of a device, or of the model of one, which has a device_buffer.hpp of its
// own (model/tests/gpu).
namespace openvc::test {

/// A copy of a host tensor with the same strides and the same NaNs round its elements, `shift`
/// bytes away from a multiple of 256.
class DeviceTensor {
 public:
  DeviceTensor(const TestTensor& tensor, std::size_t shift)
      : shift_(shift), buffer_(tensor.bytes().size() + shift, 0xFF), view_(tensor.view()) {
    const auto origin = static_cast<const std::byte*>(view_.data) - tensor.bytes().data();
    view_.data = buffer_.data() + shift + origin;
    view_.device = {DeviceType::cuda, 0};
    upload(tensor);
  }

  /// Takes the elements of another tensor of the same shape and strides.
  void upload(const TestTensor& tensor) {
    buffer_.upload(tensor.bytes().data(), tensor.bytes().size(), shift_);
  }

  [[nodiscard]] const TensorView& view() const { return view_; }

 private:
  std::size_t shift_;
  DeviceBuffer buffer_;
  TensorView view_;
};

}  // namespace openvc::test
