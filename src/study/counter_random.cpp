// SPDX-License-Identifier: BSD-3-Clause
#include "study/counter_random.hpp"

#include <bit>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace openvc::study {
namespace {

constexpr int kPhiloxRounds = 10;
constexpr std::uint64_t kPhiloxMultiplier0 = 0xD2511F53u;
constexpr std::uint64_t kPhiloxMultiplier1 = 0xCD9E8D57u;
constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9u;
constexpr std::uint32_t kPhiloxWeyl1 = 0xBB67AE85u;

constexpr double kTwoToMinus32 = 0x1p-32;

/// Blocks for single draws, which must never meet those of fill_normal or each other.
constexpr std::uint32_t kUniformBlock = 0x8000'0000u;
constexpr std::uint32_t kNormalBlock = 0x8000'0001u;

constexpr std::uint32_t low_word(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high_word(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

}  // namespace

std::array<std::uint32_t, 4> philox(const std::array<std::uint32_t, 4>& counter,
                                    std::uint64_t key) noexcept {
  std::array<std::uint32_t, 4> x = counter;
  std::uint32_t key0 = low_word(key);
  std::uint32_t key1 = high_word(key);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = kPhiloxMultiplier0 * x[0];
    const std::uint64_t product1 = kPhiloxMultiplier1 * x[2];
    x = {high_word(product1) ^ x[1] ^ key0, low_word(product1), high_word(product0) ^ x[3] ^ key1,
         low_word(product0)};
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return x;
}

double portable_log(double x) noexcept {
  // x = m 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh((m - 1) / (m + 1)).
  constexpr std::uint64_t kMantissaMask = 0x000F'FFFF'FFFF'FFFFu;
  constexpr std::uint64_t kOneBits = 0x3FF0'0000'0000'0000u;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & kMantissaMask) | kOneBits);
  if (mantissa > std::numbers::sqrt2) {
    mantissa *= 0.5;
    ++exponent;
  }
  const double ratio = (mantissa - 1.0) / (mantissa + 1.0);  // |ratio| < 0.172
  const double square = ratio * ratio;
  double series = 0.0;
  for (int n = 21; n >= 1; n -= 2) series = series * square + 1.0 / n;
  return exponent * std::numbers::ln2 + 2.0 * ratio * series;
}

CosineSine portable_cosine_sine(double turns) noexcept {
  const double rest = turns - std::floor(turns);
  const int quadrant = static_cast<int>(rest * 4.0 + 0.5);  // nearest quarter turn, 0..4
  const double angle = (rest - quadrant * 0.25) * (2.0 * std::numbers::pi);  // within +-pi/4
  const double square = angle * angle;
  double cosine = 1.0;
  double sine = 1.0;
  for (int n = 18; n >= 2; n -= 2) {
    cosine = 1.0 - cosine * square / (n * (n - 1));
    sine = 1.0 - sine * square / (n * (n + 1));
  }
  sine *= angle;
  switch (quadrant % 4) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

std::array<double, 4> CounterRandom::normals(std::uint64_t row,
                                             std::uint32_t block) const noexcept {
  const auto bits = philox({low_word(row), high_word(row), block, stream_}, seed_);
  std::array<double, 4> values{};
  for (std::size_t pair = 0; pair < 2; ++pair) {
    // Box-Muller; the first uniform lies in (0, 1].
    const double first = (bits[2 * pair] + 1.0) * kTwoToMinus32;
    const double radius = std::sqrt(-2.0 * portable_log(first));
    const auto [cosine, sine] = portable_cosine_sine(bits[2 * pair + 1] * kTwoToMinus32);
    values[2 * pair] = radius * cosine;
    values[2 * pair + 1] = radius * sine;
  }
  return values;
}

double CounterRandom::uniform(std::uint64_t index) const noexcept {
  return philox({low_word(index), high_word(index), kUniformBlock, stream_}, seed_)[0] *
         kTwoToMinus32;
}

double CounterRandom::normal(std::uint64_t index) const noexcept {
  return normals(index, kNormalBlock)[0];
}

void CounterRandom::fill_normal(std::uint64_t row, std::span<float> values) const noexcept {
  constexpr std::size_t kPerBlock = 4;
  for (std::size_t i = 0; i + kPerBlock <= values.size(); i += kPerBlock) {
    const auto four = normals(row, static_cast<std::uint32_t>(i / kPerBlock));
    for (std::size_t j = 0; j < kPerBlock; ++j) values[i + j] = static_cast<float>(four[j]);
  }
}

}  // namespace openvc::study
