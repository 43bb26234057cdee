// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace openvc::cuda {

/// A copy of bytes in a device's memory, usable on every stream when this returns.
std::shared_ptr<std::byte> copy_to_device(std::span<const std::byte> bytes, int device);

/// A copy of a device's bytes, once everything queued on the device has ended.
std::vector<std::byte> copy_to_host(const std::byte* bytes, std::size_t size, int device);

}  // namespace openvc::cuda
