// SPDX-License-Identifier: BSD-3-Clause
#include "study/tensors.hpp"

#include <cstring>
#include <limits>
#include <new>

#include "numerics/half.hpp"

namespace openvc::study {
namespace {

std::size_t byte_count(ElementType type, const std::array<std::int64_t, 4>& shape) {
  std::size_t count = element_size(type);
  for (const std::int64_t extent : shape) {
    const auto factor = static_cast<std::size_t>(extent);
    if (factor != 0 && count > std::numeric_limits<std::size_t>::max() / factor) {
      throw std::bad_array_new_length();
    }
    count *= factor;
  }
  return count;
}

/// Copies rather than casts: tensors of a file need not be aligned to their elements.
template <class Element>
Element read_at(const void* data, std::int64_t index) noexcept {
  Element element;
  std::memcpy(&element, static_cast<const std::byte*>(data) + index * std::int64_t{sizeof(element)},
              sizeof(element));
  return element;
}

template <class Element>
void write_at(void* data, std::int64_t index, Element element) noexcept {
  std::memcpy(static_cast<std::byte*>(data) + index * std::int64_t{sizeof(element)}, &element,
              sizeof(element));
}

}  // namespace

OwnedTensor::OwnedTensor(ElementType element_type, const std::array<std::int64_t, 4>& dimensions)
    : type(element_type), shape(dimensions), bytes(byte_count(element_type, dimensions)) {}

TensorView OwnedTensor::view() const noexcept {
  return {bytes.data(), type, Device{}, shape, contiguous_strides(shape)};
}

MutableTensorView OwnedTensor::mutable_view() noexcept {
  return {bytes.data(), type, Device{}, shape, contiguous_strides(shape)};
}

float load_element(const void* data, ElementType type, std::int64_t index) noexcept {
  switch (type) {
    case ElementType::bfloat16:
      return numerics::bfloat16_to_float(read_at<std::uint16_t>(data, index));
    case ElementType::float16:
      return numerics::half_to_float(read_at<std::uint16_t>(data, index));
    case ElementType::float32:
      break;
  }
  return read_at<float>(data, index);
}

void store_element(void* data, ElementType type, std::int64_t index, float value) noexcept {
  switch (type) {
    case ElementType::bfloat16:
      write_at(data, index,
               numerics::float_to_bfloat16(numerics::saturate(value, numerics::kBfloat16Max)));
      return;
    case ElementType::float16:
      write_at(data, index, numerics::float_to_half(numerics::saturate(value, numerics::kHalfMax)));
      return;
    case ElementType::float32:
      write_at(data, index, value);
      return;
  }
}

void load_row(const TensorView& tensor, std::int64_t b, std::int64_t s, std::int64_t h,
              std::span<float> row) noexcept {
  const std::int64_t start = tensor.offset(b, s, h);
  for (std::size_t c = 0; c < row.size(); ++c) {
    row[c] = load_element(tensor.data, tensor.type, start + static_cast<std::int64_t>(c));
  }
}

TensorView select_head(const TensorView& tensor, std::int64_t b, std::int64_t h) noexcept {
  TensorView head = tensor;
  const std::int64_t start = tensor.offset(b, 0, h);
  head.data = static_cast<const std::byte*>(tensor.data) +
              start * static_cast<std::int64_t>(element_size(tensor.type));
  head.shape[kBatch] = 1;
  head.shape[kHead] = 1;
  return head;
}

}  // namespace openvc::study
