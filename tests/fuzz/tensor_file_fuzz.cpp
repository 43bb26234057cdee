// SPDX-License-Identifier: BSD-3-Clause
//
// libFuzzer entry point: every input is either refused with a FileError or read consistently.
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include "io/file_error.hpp"
#include "io/tensor_file.hpp"
#include "unit/io/content_invariants.hpp"

namespace {

void check(std::span<const std::byte> file, const openvc::io::TensorFileOptions& options) {
  std::string broken;
  try {
    broken = openvc::io::testing::broken_invariant(
        openvc::io::parse_tensor_file(file, "fuzz.npy", options), file);
  } catch (const openvc::io::FileError&) {
    return;
  }
  // Uncaught on purpose: libFuzzer reports it with the input.
  if (!broken.empty()) throw std::logic_error("broken invariant: " + broken);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  check(file, {});
  check(file, {.npy = {.uint16_is_bfloat16 = true}});
  return 0;
}
