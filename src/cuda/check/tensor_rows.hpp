// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/bits.hpp"
#include "openvc/tensor_view.hpp"

namespace openvc::cuda {

/// The rows of a [B, S, H, D] tensor, counted as its contiguous copy would have them: row
/// (b * S + s) * H + h. Plain arithmetic, so that the CPU can test what a kernel walks over.
struct TensorRows {
  const std::byte* data = nullptr;
  std::int64_t batches = 0;
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t channels = 0;
  // Bytes; zero for axes of length 1, whose strides mean nothing.
  std::int64_t batch_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;

  [[nodiscard]] OPENVC_HD std::int64_t count() const { return batches * tokens * heads; }

  [[nodiscard]] OPENVC_HD const std::byte* row(std::int64_t index) const {
    const std::int64_t head = index % heads;
    const std::int64_t batch_token = index / heads;
    return data + batch_token / tokens * batch_stride + batch_token % tokens * token_stride +
           head * head_stride;
  }
};

inline TensorRows make_tensor_rows(const TensorView& tensor) {
  const auto size = static_cast<std::int64_t>(element_size(tensor.type));
  const auto stride = [&](Axis axis) {
    return tensor.shape[axis] > 1 ? tensor.strides[axis] * size : 0;
  };
  return {.data = static_cast<const std::byte*>(tensor.data),
          .batches = tensor.shape[kBatch],
          .tokens = tensor.shape[kSequence],
          .heads = tensor.shape[kHead],
          .channels = tensor.shape[kChannel],
          .batch_stride = stride(kBatch),
          .token_stride = stride(kSequence),
          .head_stride = stride(kHead)};
}

/// The exponent bits of an element type: all of them are set in infinities and NaNs, and only
/// there.
constexpr std::uint32_t exponent_mask(ElementType type) {
  switch (type) {
    case ElementType::bfloat16:
      return 0x7F80u;
    case ElementType::float16:
      return 0x7C00u;
    case ElementType::float32:
      return 0x7F80'0000u;
  }
  return 0;
}

}  // namespace openvc::cuda
