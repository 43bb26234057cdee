// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "numerics/half.hpp"
#include "openvc/tensor_view.hpp"

namespace openvc::test {

using Shape = std::array<std::int64_t, 4>;

/// Reproducible pseudo-random numbers that do not depend on the standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  /// Roughly normal, standard deviation 1.
  float normal() {
    float sum = 0.0f;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(next() >> 40) * 0x1p-24f;
    return sum - 6.0f;
  }

 private:
  std::uint64_t state_;
};

/// A tensor in a buffer of its own, with any strides. Elements that the tensor does not own, and a
/// margin on both sides, hold NaN: whoever reads them shows it.
class TestTensor {
 public:
  TestTensor(ElementType type, const Shape& shape)
      : TestTensor(type, shape, contiguous_strides(shape)) {}

  TestTensor(ElementType type, const Shape& shape, const Shape& strides)
      : type_(type), shape_(shape), strides_(strides) {
    std::int64_t lowest = 0;
    std::int64_t highest = 0;
    for (std::size_t axis = 0; axis < 4; ++axis) {
      if (shape[axis] == 1) continue;
      const std::int64_t reach = (shape[axis] - 1) * strides[axis];
      (reach < 0 ? lowest : highest) += reach;
    }
    origin_ = kMargin - lowest;
    const std::size_t elements = static_cast<std::size_t>(origin_ + highest + 1 + kMargin);
    bytes_.resize(elements * element_size(type));
    for (std::size_t i = 0; i < elements; ++i) store(i, std::numeric_limits<float>::quiet_NaN());
    untouched_ = bytes_;
  }

  void set(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t c, float value) {
    store(index(b, s, h, c), value);
  }

  [[nodiscard]] float get(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t c) const {
    return load(index(b, s, h, c));
  }

  template <class Value>
  TestTensor& fill(const Value& value) {
    for_each([&](std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t c) {
      set(b, s, h, c, value(b, s, h, c));
    });
    return *this;
  }

  TestTensor& fill_normal(std::uint64_t seed, float scale = 1.0f) {
    Random random(seed);
    return fill([&](auto...) { return scale * random.normal(); });
  }

  template <class Visit>
  void for_each(const Visit& visit) const {
    for (std::int64_t b = 0; b < shape_[0]; ++b) {
      for (std::int64_t s = 0; s < shape_[1]; ++s) {
        for (std::int64_t h = 0; h < shape_[2]; ++h) {
          for (std::int64_t c = 0; c < shape_[3]; ++c) visit(b, s, h, c);
        }
      }
    }
  }

  [[nodiscard]] TensorView view() const {
    return {bytes_.data() + origin_ * static_cast<std::int64_t>(element_size(type_)),
            type_,
            {},
            shape_,
            strides_};
  }

  [[nodiscard]] MutableTensorView mutable_view() {
    return {bytes_.data() + origin_ * static_cast<std::int64_t>(element_size(type_)),
            type_,
            {},
            shape_,
            strides_};
  }

  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

  /// Whether everything outside the tensor's elements is as the constructor left it.
  [[nodiscard]] bool surroundings_untouched() const {
    std::vector<std::byte> now = bytes_;
    for_each([&](std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t c) {
      const std::size_t size = element_size(type_);
      const std::size_t at = index(b, s, h, c) * size;
      std::memcpy(now.data() + at, untouched_.data() + at, size);
    });
    return now == untouched_;
  }

 private:
  static constexpr std::int64_t kMargin = 64;

  [[nodiscard]] std::size_t index(std::int64_t b, std::int64_t s, std::int64_t h,
                                  std::int64_t c) const {
    const std::int64_t channel = shape_[3] > 1 ? c * strides_[3] : 0;
    return static_cast<std::size_t>(origin_ + view().offset(b, s, h) + channel);
  }

  void store(std::size_t i, float value) {
    std::byte* at = bytes_.data() + i * element_size(type_);
    if (type_ == ElementType::float32) {
      std::memcpy(at, &value, sizeof(value));
      return;
    }
    const std::uint16_t bits = type_ == ElementType::bfloat16 ? numerics::float_to_bfloat16(value)
                                                              : numerics::float_to_half(value);
    std::memcpy(at, &bits, sizeof(bits));
  }

  [[nodiscard]] float load(std::size_t i) const {
    const std::byte* at = bytes_.data() + i * element_size(type_);
    if (type_ == ElementType::float32) {
      float value = 0.0f;
      std::memcpy(&value, at, sizeof(value));
      return value;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof(bits));
    return type_ == ElementType::bfloat16 ? numerics::bfloat16_to_float(bits)
                                          : numerics::half_to_float(bits);
  }

  ElementType type_;
  Shape shape_;
  Shape strides_;
  std::int64_t origin_ = 0;
  std::vector<std::byte> bytes_;
  std::vector<std::byte> untouched_;
};

}  // namespace openvc::test
