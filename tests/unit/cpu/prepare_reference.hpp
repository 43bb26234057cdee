// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu/prepare.hpp"
#include "schedule/prepared_layout.hpp"

// The preparation written down a second time, element by element and as plainly as possible from
// the functions of src/numerics. What it says, every backend's bytes must equal.
namespace openvc::test {

struct PreparedBytes {
  schedule::PreparedLayout layout;
  std::vector<std::byte> bytes;
  std::vector<HeadPlan> plans;
};

PreparedBytes reference_prepare(const schedule::PrepareRequest& request);

/// cpu::prepare() with a block between guards and filled with `filler` before; fails the test if a
/// guard changes.
PreparedBytes run_prepare(const schedule::PrepareRequest& request, int threads = 2,
                          std::uint8_t filler = 0xA5);

/// Name of the first section in which two blocks differ and where; empty if they are equal. The
/// gaps between sections do not count.
std::string first_difference(const schedule::PrepareRequest& request, const PreparedBytes& a,
                             const PreparedBytes& b);

struct Section {
  std::string name;
  std::size_t begin;
  std::size_t end;
};
std::vector<Section> sections(const schedule::PrepareRequest& request);

}  // namespace openvc::test
