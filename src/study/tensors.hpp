// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "openvc/tensor_view.hpp"

namespace openvc::study {

/// A contiguous [B, S, H, D] tensor in memory of its own.
struct OwnedTensor {
  ElementType type = ElementType::bfloat16;
  std::array<std::int64_t, 4> shape{};  // [B, S, H, D]
  std::vector<std::byte> bytes;

  OwnedTensor() = default;
  OwnedTensor(ElementType element_type, const std::array<std::int64_t, 4>& dimensions);

  [[nodiscard]] TensorView view() const noexcept;
  [[nodiscard]] MutableTensorView mutable_view() noexcept;
};

/// The inputs of one attention call.
struct Tensors {
  OwnedTensor q;
  OwnedTensor k;
  OwnedTensor v;
};

/// Element `index` (counted in elements from `data`) as binary32, exactly.
[[nodiscard]] float load_element(const void* data, ElementType type, std::int64_t index) noexcept;

/// Rounds to nearest even and limits to the finite range of the type.
void store_element(void* data, ElementType type, std::int64_t index, float value) noexcept;

/// One row of channels as binary32.
void load_row(const TensorView& tensor, std::int64_t b, std::int64_t s, std::int64_t h,
              std::span<float> row) noexcept;

/// The part of a tensor that belongs to one batch entry and head: [1, S, 1, D].
[[nodiscard]] TensorView select_head(const TensorView& tensor, std::int64_t b,
                                     std::int64_t h) noexcept;

}  // namespace openvc::study
