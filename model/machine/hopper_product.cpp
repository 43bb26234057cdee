// SPDX-License-Identifier: BSD-3-Clause
#include "machine/hopper_product.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "machine/canonical_nan.hpp"
#include "machine/decoded_operand.hpp"
#include "machine/matrix_product.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/half.hpp"

namespace openvc::model {
namespace {

constexpr int kColumns = 8;  // that loops take at a time, side by side

/// An operand of the Hopper tensor core.
struct Factor {
  float value;  // 0 for NaN
  std::int16_t exponent;
  bool is_nan;
};

/// Twice it is still far below every exponent.
constexpr std::int16_t kNoExponent = -4096;

constexpr std::array<Factor, 256> kFactors = [] {
  std::array<Factor, 256> factors{};
  for (std::size_t code = 0; code < factors.size(); ++code) {
    constexpr int kMantissaBits = 3;
    constexpr int kFieldMask = 15;
    constexpr int kBias = 7;
    const float value = numerics::kE4m3Values[code];
    const bool is_nan = value != value;
    const int field = static_cast<int>(code >> kMantissaBits) & kFieldMask;
    const int exponent = std::max(field, 1) - kBias;  // subnormal numbers have the smallest
    factors[code] = {is_nan ? 0.0f : value,
                     is_nan || value == 0 ? kNoExponent : static_cast<std::int16_t>(exponent),
                     is_nan};
  }
  return factors;
}();

/// Factors, k outermost.
struct Factors {
  std::vector<float> values;
  std::vector<std::int16_t> exponents;
  std::vector<unsigned char> nan;  // of a column

  Factors() = default;
  explicit Factors(std::span<const std::byte> bytes)
      : values(bytes.size()), exponents(bytes.size()), nan(bytes.size() / kProductDepth) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const Factor& factor = kFactors[std::to_integer<std::size_t>(bytes[i])];
      const std::size_t place = i % kProductDepth * nan.size() + i / kProductDepth;
      values[place] = factor.value;
      exponents[place] = factor.exponent;
      nan[i / kProductDepth] |= static_cast<unsigned char>(factor.is_nan);
    }
  }
};

/// Towards zero, to kSumBits significant bits.
float truncated_sum(float sum) {
  constexpr int kDroppedBits = numerics::kFloatMantissaBits + 1 - kSumBits;
  return numerics::float_from_bits(numerics::float_bits(sum) >> kDroppedBits << kDroppedBits);
}

float rounded_sum(float sum, Product::Sum type) {
  return type == Product::Sum::binary16 ? numerics::half_to_float(numerics::float_to_half(sum))
                                        : truncated_sum(sum);
}

/// A row of A.
struct Row {
  Factor factors[kProductDepth];
  bool is_nan = false;

  explicit Row(const std::byte* bytes) {
    for (std::size_t k = 0; k < kProductDepth; ++k) {
      factors[k] = kFactors[std::to_integer<std::size_t>(bytes[k])];
      is_nan |= factors[k].is_nan;
    }
  }
};

/// kColumns sums of a row, from column `first` on.
void add_products(const Row& left, const Factors& right, std::size_t first, Product::Sum type,
                  float* d) {
  const std::size_t columns = right.nan.size();
  std::int16_t largest[kColumns];
  std::fill_n(largest, kColumns, kNoExponent);
  for (std::size_t k = 0; k < kProductDepth; ++k) {
    const std::int16_t* exponents = right.exponents.data() + k * columns + first;
    for (std::size_t n = 0; n < kColumns; ++n) {
      const auto exponent = static_cast<std::int16_t>(left.factors[k].exponent + exponents[n]);
      largest[n] = std::max(largest[n], exponent);
    }
  }
  // In units of the last place that is kept a term is below 2^(kAlignmentBits + 2): 33 of them fit.
  float scale[kColumns];
  float unit[kColumns];
  std::int32_t total[kColumns];
  for (std::size_t n = 0; n < kColumns; ++n) {
    const float old = numerics::is_finite(d[n]) ? d[n] : 0.0f;
    int exponent = largest[n] > kNoExponent ? largest[n] : 0;
    if (old != 0) exponent = std::max(exponent, numerics::floor_log2(old));
    scale[n] = numerics::exp2_int(kAlignmentBits - exponent);
    unit[n] = numerics::exp2_int(exponent - kAlignmentBits);
    total[n] = static_cast<std::int32_t>(old * scale[n]);
  }
  for (std::size_t k = 0; k < kProductDepth; ++k) {
    const float* values = right.values.data() + k * columns + first;
    const float value = left.factors[k].value;
    for (std::size_t n = 0; n < kColumns; ++n) {
      total[n] += static_cast<std::int32_t>(value * values[n] * scale[n]);
    }
  }
  const float nan = type == Product::Sum::binary16 ? numerics::half_to_float(kHalfNan)
                                                   : numerics::float_from_bits(kFloatNanBits);
  for (std::size_t n = 0; n < kColumns; ++n) {
    if (left.is_nan || right.nan[first + n] != 0 || d[n] != d[n]) {
      d[n] = nan;
    } else if (!numerics::is_finite(d[n])) {
      continue;  // infinite: it stays
    } else if (largest[n] > kNoExponent) {
      d[n] = rounded_sum(static_cast<float>(total[n]) * unit[n], type);
    } else {
      d[n] = rounded_sum(d[n], type);
    }
  }
}

}  // namespace

void add_hopper_products(std::span<const std::byte> a, std::span<const std::byte> b,
                         Product::Sum type, std::span<float> sums) {
  const Factors& right = decoded<Factors>(b);
  const std::size_t columns = right.nan.size();
  for (std::size_t row = 0; row < kProductRows; ++row) {
    const Row left(a.data() + row * kProductDepth);
    for (std::size_t first = 0; first < columns; first += kColumns) {
      add_products(left, right, first, type, sums.data() + row * columns + first);
    }
  }
}

}  // namespace openvc::model
