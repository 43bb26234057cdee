// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "openvc/attention.hpp"

// The bytes of prepared inputs, for tests and studies. Their layout follows the contract version
// and may change with it; attention never needs it.
// What a shared library shows: the build hides everything else.
#pragma GCC visibility push(default)
namespace openvc {

/// One array of prepared inputs. Heads ("bh") count batch * heads + head.
struct PreparedSection {
  std::string name;
  std::string type;  ///< "e4m3", "uint8" or "float32"
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;  ///< C-contiguous, on the device of the inputs
  std::size_t bytes = 0;
};

/// All sections. The pointers are valid while `prepared` or a copy of it lives. Of the residual
/// columns only those of a head's extra steps (see head_rules) have a meaning; the others may never
/// have been written.
std::vector<PreparedSection> sections(const Prepared& prepared);

/// A copy of bytes in the memory of a CUDA device, usable on every stream: for checks of a device
/// in programs that have no framework to get device memory from.
std::shared_ptr<std::byte> copy_to_device(std::span<const std::byte> bytes, Device device);

/// A copy of bytes of a CUDA device. Waits for everything that is queued there.
std::vector<std::byte> copy_to_host(const std::byte* bytes, std::size_t size, Device device);

}  // namespace openvc
#pragma GCC visibility pop
