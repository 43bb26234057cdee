// SPDX-License-Identifier: BSD-3-Clause
#include "machine/block_product.hpp"
#include "machine/cluster.hpp"

namespace openvc::model {
namespace {

constexpr std::uint32_t kMostColumns = 256;  // of D
constexpr std::uint32_t kColumnStep = 16;

}  // namespace

/// PTX ISA 9.0, 9.7.16.4.2: the instruction descriptor of kind::f8f6f4.
BlockShape decode_instruction(std::uint32_t bits, const std::string& name) {
  const auto field = [&](int first, int count) { return bits >> first & ((1u << count) - 1); };
  const auto expect = [&](const char* what, std::uint32_t found, std::uint32_t expected) {
    if (found == expected) return;
    fail(name + ": instruction descriptor " + hexadecimal(bits) + ": " + what + " is " +
         std::to_string(found) + "; the model knows " + std::to_string(expected));
  };
  expect("the sparsity (bits 0 to 2)", field(0, 3), 0);
  expect("saturation (bit 3)", field(3, 1), 0);
  if (field(4, 2) > 1) {
    fail(name + ": instruction descriptor " + hexadecimal(bits) + ": the type of D is " +
         std::to_string(field(4, 2)) + "; expected 0 (binary16) or 1 (binary32)");
  }
  expect("a reserved field (bit 6)", field(6, 1), 0);
  expect("the type of A (bits 7 to 9)", field(7, 3), 0);
  expect("the type of B (bits 10 to 12)", field(10, 3), 0);
  expect("negation of A and B (bits 13 and 14)", field(13, 2), 0);
  expect("transposition of A and B (bits 15 and 16)", field(15, 2), 0);
  expect("a reserved field (bit 23)", field(23, 1), 0);
  expect("M (bits 24 to 28, times 16)", 16 * field(24, 5), kBlockRows);
  expect("a reserved field (bits 29 to 31)", field(29, 3), 0);
  const std::uint32_t columns = 8 * field(17, 6);
  if (columns == 0 || columns % kColumnStep != 0 || columns > kMostColumns) {
    fail(name + ": instruction descriptor " + hexadecimal(bits) + ": N is " +
         std::to_string(columns) + "; expected a multiple of 16 from 16 to 256 for M = 128");
  }
  return {field(4, 2) == 0, columns};
}

}  // namespace openvc::model
