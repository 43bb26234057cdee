// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>

// Hashes of what a contract version produces, kept in tests/golden/contract_v<version>.txt.
namespace openvc::golden {

/// FNV-1a, 64 bits: enough to notice a change, short enough to read.
class Hash {
 public:
  Hash& bytes(const void* data, std::size_t size) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < size; ++i) value_ = (value_ ^ at[i]) * kPrime;
    return *this;
  }
  template <class T>
  Hash& value(const T& x) {
    static_assert(std::is_arithmetic_v<T>);
    return bytes(&x, sizeof(x));
  }
  [[nodiscard]] std::uint64_t result() const { return value_; }

 private:
  static constexpr std::uint64_t kPrime = 0x100'0000'01B3u;
  std::uint64_t value_ = 0xCBF2'9CE4'8422'2325u;  // offset basis
};

/// A file of tests/golden, or of OPENVC_GOLDEN_DIRECTORY on a machine without the repository.
std::string golden_path(const std::string& name);

/// Adds failures to the running test where `hash` is not that of the file. With
/// OPENVC_UPDATE_GOLDEN=1 in the environment it is written there instead.
void expect_golden(const std::string& name, std::uint64_t hash);

/// Names of all hashes of this contract version.
std::map<std::string, std::uint64_t> read_golden();

}  // namespace openvc::golden
