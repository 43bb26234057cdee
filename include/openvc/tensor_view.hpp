// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace openvc {

/// Element types of attention inputs and outputs.
enum class ElementType : std::uint8_t { bfloat16, float16, float32 };

[[nodiscard]] constexpr std::size_t element_size(ElementType type) noexcept {
  return type == ElementType::float32 ? 4 : 2;
}

[[nodiscard]] constexpr const char* element_name(ElementType type) noexcept {
  switch (type) {
    case ElementType::bfloat16:
      return "bfloat16";
    case ElementType::float16:
      return "float16";
    case ElementType::float32:
      return "float32";
  }
  return "unknown";
}

enum class DeviceType : std::uint8_t { cpu, cuda };

/// A device that holds tensors. `index` is the CUDA ordinal and is ignored for the CPU.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

/// Dimension order of every attention tensor of this library. A [S, H, D] tensor has batch 1.
enum Axis : int { kBatch = 0, kSequence = 1, kHead = 2, kChannel = 3 };

/// A strided, read-only view of a [batch, sequence, head, channel] tensor that somebody else owns.
///
/// Strides count elements, not bytes. They may be zero (expanded tensors), negative, and span more
/// than 2^32 elements; the channel stride must be 1 wherever that axis has more than one element.
/// The stride of an axis of length 1 is never used.
struct TensorView {
  const void* data = nullptr;
  ElementType type = ElementType::bfloat16;
  Device device{};
  std::array<std::int64_t, 4> shape{};    // [B, S, H, D]
  std::array<std::int64_t, 4> strides{};  // elements

  [[nodiscard]] constexpr std::int64_t offset(std::int64_t b, std::int64_t s,
                                              std::int64_t h) const noexcept {
    return (shape[kBatch] > 1 ? b * strides[kBatch] : 0) +
           (shape[kSequence] > 1 ? s * strides[kSequence] : 0) +
           (shape[kHead] > 1 ? h * strides[kHead] : 0);
  }
};

/// The same for a tensor that the library writes.
struct MutableTensorView {
  void* data = nullptr;
  ElementType type = ElementType::bfloat16;
  Device device{};
  std::array<std::int64_t, 4> shape{};    // [B, S, H, D]
  std::array<std::int64_t, 4> strides{};  // elements

  [[nodiscard]] constexpr TensorView view() const noexcept {
    return {data, type, device, shape, strides};
  }
};

/// Strides of a contiguous [B, S, H, D] tensor.
[[nodiscard]] constexpr std::array<std::int64_t, 4> contiguous_strides(
    const std::array<std::int64_t, 4>& shape) noexcept {
  return {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
}

}  // namespace openvc
