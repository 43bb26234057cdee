// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>

namespace openvc::cpu {

/// A cache line, and the widest vector.
inline constexpr std::size_t kVectorAlignment = 64;

/// Uninitialised memory for vectors.
template <class T>
class AlignedBuffer {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t count)
      : data_(static_cast<T*>(
            ::operator new (count * sizeof(T), std::align_val_t{kVectorAlignment}))) {}

  [[nodiscard]] T* data() const { return data_.get(); }

 private:
  struct Delete {
    void operator()(T* data) const { ::operator delete (data, std::align_val_t{kVectorAlignment}); }
  };
  std::unique_ptr<T, Delete> data_;
};

}  // namespace openvc::cpu
