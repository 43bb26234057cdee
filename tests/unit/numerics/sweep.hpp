// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <ostream>
#include <string_view>
#include <thread>
#include <vector>

#include "numerics/bits.hpp"

// Walking over large domains: samples, threads and a record of what differed.
namespace openvc::numerics::testing {

/// Denser samples on request: OPENVC_FULL_TESTS=1.
inline bool full_tests() {
  const char* value = std::getenv("OPENVC_FULL_TESTS");
  return value != nullptr && std::string_view(value) == "1";
}

/// Reproducible pseudo-random numbers (splitmix64), the same on every platform.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    state_ += 0x9E37'79B9'7F4A'7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58'476D'1CE4'E5B9u;
    z = (z ^ (z >> 27)) * 0x94D0'49BB'1331'11EBu;
    return z ^ (z >> 31);
  }
  /// Uniform in [low, high).
  double uniform(double low = 0.0, double high = 1.0) {
    return low + (high - low) * static_cast<double>(bits() >> 11) * 0x1p-53;
  }
  /// Uniform in 0 .. bound - 1.
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(bound));
  }
  /// Standard normal (Box-Muller).
  double normal() {
    constexpr double kTwoPi = 6.283185307179586;
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(kTwoPi * uniform());
  }

 private:
  std::uint64_t state_;
};

/// Cases in which a sweep found something else than it expected, and the first of them.
struct Mismatches {
  std::uint64_t count = 0;
  double first_input = 0.0;
  double second_input = 0.0;
  double expected = 0.0;
  double found = 0.0;

  void check(double want, double got, double a, double b = 0.0) {
    if (want == got || (std::isnan(want) && std::isnan(got))) return;
    if (count++ == 0) *this = {1, a, b, want, got};
  }
  void merge(const Mismatches& other) {
    const std::uint64_t total = count + other.count;
    if (count == 0) *this = other;
    count = total;
  }
  friend std::ostream& operator<<(std::ostream& out, const Mismatches& m) {
    out << m.count << " mismatches";
    if (m.count > 0) {
      out << ", first at (" << m.first_input << ", " << m.second_input << "): expected "
          << m.expected << ", found " << m.found;
    }
    return out;
  }
};

/// Runs body(begin, end, mismatches) on a partition of [0, count), one part per CPU.
template <class Body>
Mismatches sweep(std::uint64_t count, const Body& body) {
  const std::size_t workers = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Mismatches> found(workers);
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < workers; ++w) {
    threads.emplace_back(
        [&, w] { body(count * w / workers, count * (w + 1) / workers, found[w]); });
  }
  for (std::thread& thread : threads) thread.join();
  Mismatches all;
  for (const Mismatches& part : found) all.merge(part);
  return all;
}

/// Floats around everything that a conversion to a narrow format may get wrong: in each of the 512
/// binades of both signs, the numbers within 2 ulp of every 5-bit significand (which are the values
/// of E4M3 and the ties between them), of every tie of binary16 and bfloat16 in the neighbourhood
/// of its ends, and `samples` pseudo-random significands. Infinities, NaNs and subnormals included.
template <class Visit>
void for_stratified_floats(int samples, const Visit& visit) {
  constexpr std::uint32_t kMantissas = 1u << kFloatMantissaBits;
  Random random(2026);
  for (std::uint32_t binade = 0; binade < 512; ++binade) {
    const std::uint32_t base = binade << kFloatMantissaBits;
    const auto around = [&](std::uint32_t bits) {
      for (std::uint32_t step = 0; step < 5; ++step) visit(float_from_bits(bits + step - 2));
    };
    for (std::uint32_t m = 0; m < 32; ++m) around(base + m * (kMantissas / 32));
    for (const int half_quantum_bit : {12, 15}) {  // binary16, bfloat16
      const std::uint32_t tie = 1u << half_quantum_bit;
      for (std::uint32_t m = 0; m < 4; ++m) {
        around(base + m * tie);
        around(base + kMantissas - m * tie);
      }
    }
    for (int i = 0; i < samples; ++i) {
      visit(float_from_bits(base | static_cast<std::uint32_t>(random.bits() % kMantissas)));
    }
  }
}

}  // namespace openvc::numerics::testing
