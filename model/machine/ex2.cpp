// SPDX-License-Identifier: BSD-3-Clause
#include "machine/ex2.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "numerics/bits.hpp"

// How Hopper computes 2^x, fitted to the results of an H200 for all 2^23 fractions of an octave
// (benchmarks/cuda/ex2_rounding.cu) and equal to every one of them. |x| is cut to 23
// bits behind the point and x < 0 takes their complement, but for whole numbers. The first 6 bits
// of the fraction choose a parabola in the other 17, l, whose square is short of its last bits.
namespace openvc::model {
namespace {

constexpr int kFractionBits = numerics::kFloatMantissaBits;
constexpr int kPlaceBits = 17;  // of l
constexpr int kParabolas = 1 << (kFractionBits - kPlaceBits);

/// mantissa = constant / 4 + slope l / 2^15 + curvature square(l)
struct Parabola {
  std::int32_t constant;
  std::int32_t slope;
  std::int32_t curvature;
};

constexpr std::array<Parabola, kParabolas> kTable{{
    {3, 22713, 494},        {365386, 22960, 501},   {734750, 23210, 506},   {1108133, 23463, 511},
    {1485586, 23718, 518},  {1867145, 23977, 521},  {2252860, 24238, 527},  {2642777, 24502, 532},
    {3036940, 24768, 541},  {3435393, 25038, 546},  {3838184, 25311, 551},  {4245365, 25586, 559},
    {4656977, 25865, 564},  {5073072, 26147, 568},  {5493699, 26431, 577},  {5918905, 26719, 583},
    {6348741, 27010, 589},  {6783258, 27304, 596},  {7222505, 27602, 600},  {7666538, 27902, 609},
    {8115404, 28206, 615},  {8569160, 28513, 622},  {9027854, 28824, 627},  {9491545, 29138, 633},
    {9960285, 29455, 641},  {10434129, 29776, 647}, {10913133, 30100, 655}, {11397354, 30428, 661},
    {11886846, 30759, 670}, {12381669, 31094, 677}, {12881882, 31432, 686}, {13387539, 31775, 691},
    {13898703, 32121, 699}, {14415435, 32471, 705}, {14937793, 32824, 715}, {15465837, 33182, 721},
    {15999633, 33543, 730}, {16539242, 33908, 739}, {17084727, 34277, 748}, {17636150, 34651, 753},
    {18193579, 35028, 763}, {18757078, 35409, 773}, {19326714, 35795, 779}, {19902551, 36185, 787},
    {20484659, 36579, 796}, {21073106, 36977, 806}, {21667961, 37380, 813}, {22269293, 37787, 822},
    {22877175, 38198, 833}, {23491674, 38614, 842}, {24112865, 39035, 849}, {24740822, 39460, 858},
    {25375616, 39889, 870}, {26017322, 40324, 877}, {26666015, 40763, 887}, {27321773, 41207, 896},
    {27984672, 41655, 909}, {28654788, 42109, 917}, {29332202, 42568, 925}, {30016992, 43031, 938},
    {30709240, 43500, 946}, {31409026, 43973, 959}, {32116431, 44452, 969}, {32831540, 44936, 980},
}};

constexpr int kGuardBits = 15;  // behind the last place of the mantissa
constexpr int kConstantBits = kGuardBits - 2;
constexpr std::int64_t kBias = 6114;  // added to all, in units of the guard bits

/// (l / 2^17)^2 in units of 2^-kGuardBits. Each product of two bits below a unit is left out; those
/// of unlike bits are taken together, twice.
std::int64_t short_square(std::int64_t l) {
  constexpr int kUnitPlace = 2 * kPlaceBits - kGuardBits;  // 2^-kGuardBits in products of bits of l
  std::int64_t square = 0;
  for (int i = (kUnitPlace + 1) / 2; i < kPlaceBits; ++i) {
    if ((l >> i & 1) == 0) continue;
    const std::int64_t lower = l & ((std::int64_t{1} << i) - 1);
    square += (std::int64_t{1} << (2 * i - kUnitPlace)) + (lower >> (kUnitPlace - 1 - i));
  }
  return square;
}

/// Mantissa field of 2^(fraction / 2^kFractionBits).
std::int64_t mantissa(std::int64_t fraction) {
  const Parabola& parabola = kTable[static_cast<std::size_t>(fraction >> kPlaceBits)];
  const std::int64_t l = fraction & ((1 << kPlaceBits) - 1);
  const std::int64_t sum = (std::int64_t{parabola.constant} << kConstantBits) + parabola.slope * l +
                           parabola.curvature * short_square(l) + kBias;
  return sum >> kGuardBits;
}

}  // namespace

float ex2(float x) {
  constexpr int kLeastExponent = numerics::kFloatMinNormalExponent;
  constexpr int kMostExponent = 127;
  if (std::isnan(x)) return x;
  if (x < kLeastExponent) return 0.0f;  // subnormal results are flushed
  if (x > kMostExponent + 1) return numerics::infinity();
  constexpr std::int64_t kFractionMask = (std::int64_t{1} << kFractionBits) - 1;
  auto fixed = static_cast<std::int64_t>(std::fabs(x) * numerics::exp2_int(kFractionBits));
  if (x < 0) fixed = (fixed & kFractionMask) == 0 ? -fixed : ~fixed;
  const std::int64_t exponent = fixed >> kFractionBits;
  if (exponent > kMostExponent) return numerics::infinity();
  const std::int64_t bits =
      ((exponent + kMostExponent) << kFractionBits) + mantissa(fixed & kFractionMask);
  return numerics::float_from_bits(static_cast<std::uint32_t>(bits));
}

}  // namespace openvc::model
