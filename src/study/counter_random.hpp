// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace openvc::study {

/// The 128 random bits that belong to a counter under a key: Philox4x32-10 (Salmon et al. 2011).
///
/// A counter-based generator has no state, so element i of a tensor is the same whoever draws it
/// and in whatever order.
[[nodiscard]] std::array<std::uint32_t, 4> philox(const std::array<std::uint32_t, 4>& counter,
                                                  std::uint64_t key) noexcept;

/// Natural logarithm of a positive normal number, and cosine and sine of a fraction of a turn.
///
/// The standard library's functions differ in the last bit between machines; these use only
/// operations that IEEE 754 rounds exactly, so that a named data set is the same bytes everywhere.
[[nodiscard]] double portable_log(double x) noexcept;
struct CosineSine {
  double cosine;
  double sine;
};
[[nodiscard]] CosineSine portable_cosine_sine(double turns) noexcept;

/// Random numbers addressed by (seed, stream, index).
class CounterRandom {
 public:
  constexpr CounterRandom(std::uint64_t seed, std::uint32_t stream) noexcept
      : seed_(seed), stream_(stream) {}

  /// Uniform in [0, 1).
  [[nodiscard]] double uniform(std::uint64_t index) const noexcept;

  /// One normal deviate.
  [[nodiscard]] double normal(std::uint64_t index) const noexcept;

  /// Normal deviates for a row; its size must be a multiple of four.
  void fill_normal(std::uint64_t row, std::span<float> values) const noexcept;

 private:
  [[nodiscard]] std::array<double, 4> normals(std::uint64_t row,
                                              std::uint32_t block) const noexcept;

  std::uint64_t seed_;
  std::uint32_t stream_;
};

}  // namespace openvc::study
