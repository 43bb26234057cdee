// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <ios>
#include <iterator>
#include <map>
#include <string>
#include <vector>

// Outputs of recorded_problems() as an H200 wrote them, in tests/golden/h200_outputs.bin.
// Little-endian records, one after the other: size of the name (32 bits), name, hash of the
// prepared bytes (64 bits), sizes of the output and of the log-sum-exp in bytes (32 bits each),
// both of them.
namespace openvc::test {

struct RecordedOutput {
  std::uint64_t inputs = 0;  // hash of the prepared bytes
  std::vector<std::byte> output;
  std::vector<std::byte> log_sum_exp;
};
using RecordedOutputs = std::map<std::string, RecordedOutput>;

inline void write_recorded(const std::string& path, const RecordedOutputs& outputs) {
  std::ofstream file(path, std::ios::binary);
  const auto put = [&](const void* data, std::size_t size) {
    file.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
  };
  const auto put_size = [&](std::size_t size) {
    const auto bits = static_cast<std::uint32_t>(size);
    put(&bits, sizeof(bits));
  };
  for (const auto& [name, recorded] : outputs) {
    put_size(name.size());
    put(name.data(), name.size());
    put(&recorded.inputs, sizeof(recorded.inputs));
    put_size(recorded.output.size());
    put_size(recorded.log_sum_exp.size());
    put(recorded.output.data(), recorded.output.size());
    put(recorded.log_sum_exp.data(), recorded.log_sum_exp.size());
  }
  if (!file.flush()) throw std::ios_base::failure(path + ": could not be written");
}

/// Empty where there is no such file.
inline RecordedOutputs read_recorded(const std::string& path) {
  RecordedOutputs outputs;
  std::ifstream file(path, std::ios::binary);
  const auto get = [&](void* data, std::size_t size) {
    file.read(static_cast<char*>(data), static_cast<std::streamsize>(size));
  };
  const auto get_size = [&] {
    std::uint32_t bits = 0;
    get(&bits, sizeof(bits));
    return file ? bits : 0u;
  };
  while (file.peek() != std::ifstream::traits_type::eof()) {
    std::string name(get_size(), ' ');
    get(name.data(), name.size());
    RecordedOutput& recorded = outputs[name];
    get(&recorded.inputs, sizeof(recorded.inputs));
    recorded.output.resize(get_size());
    recorded.log_sum_exp.resize(get_size());
    get(recorded.output.data(), recorded.output.size());
    get(recorded.log_sum_exp.data(), recorded.log_sum_exp.size());
    if (!file) throw std::ios_base::failure(path + ": ends within '" + name + "'");
  }
  return outputs;
}

/// By how many representable numbers two differ; numbers of either sign in one order. A NaN differs
/// from what is none by kNanDistance, from another by nothing.
inline constexpr std::int64_t kNanDistance = std::int64_t{1} << 40;

template <class Bits>
std::int64_t distance(Bits a, Bits b, Bits infinity) {
  constexpr auto kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const auto magnitude = [](Bits bits) { return static_cast<Bits>(bits & ~kSign); };
  const bool a_nan = magnitude(a) > infinity;
  const bool b_nan = magnitude(b) > infinity;
  if (a_nan || b_nan) return a_nan == b_nan ? 0 : kNanDistance;
  const auto ordered = [&](Bits bits) {
    const auto size = static_cast<std::int64_t>(magnitude(bits));
    return (bits & kSign) != 0 ? -size : size;
  };
  const std::int64_t difference = ordered(a) - ordered(b);
  return difference < 0 ? -difference : difference;
}

/// What two arrays of numbers differ by.
struct Difference {
  std::int64_t elements = 0;
  std::int64_t bits = 0;      // elements of other bits
  std::int64_t one_unit = 0;  // elements that are neighbours
  std::int64_t more = 0;      // elements that are further apart
  std::int64_t most = 0;      // units of the last place

  [[nodiscard]] std::string describe() const {
    return std::to_string(bits) + " of " + std::to_string(elements) + " (" +
           std::to_string(one_unit) + " by one unit, " + std::to_string(more) +
           " by more, at most " + std::to_string(most) + ")";
  }
};

template <class Bits>
Difference difference(const std::vector<std::byte>& a, const std::vector<std::byte>& b,
                      Bits infinity) {
  Difference result;
  for (std::size_t i = 0; i < a.size(); i += sizeof(Bits)) {
    Bits x = 0;
    Bits y = 0;
    std::memcpy(&x, a.data() + i, sizeof(Bits));
    std::memcpy(&y, b.data() + i, sizeof(Bits));
    ++result.elements;
    result.bits += x != y;
    const std::int64_t units = distance(x, y, infinity);
    result.one_unit += units == 1;
    result.more += units > 1;
    result.most = std::max(result.most, units);
  }
  return result;
}

/// How many of two arrays of numbers are further apart than `most` and than neighbours are. A NaN
/// or an infinity is apart from everything but its own bits.
inline std::int64_t apart(const std::vector<std::byte>& a, const std::vector<std::byte>& b,
                          float most) {
  std::int64_t result = 0;
  for (std::size_t i = 0; i < a.size(); i += sizeof(float)) {
    float x = 0;
    float y = 0;
    std::memcpy(&x, a.data() + i, sizeof(float));
    std::memcpy(&y, b.data() + i, sizeof(float));
    if (std::memcmp(&x, &y, sizeof(float)) == 0 || std::nextafter(x, y) == y) continue;
    result += std::fabs(x - y) <= most ? 0 : 1;
  }
  return result;
}

}  // namespace openvc::test
