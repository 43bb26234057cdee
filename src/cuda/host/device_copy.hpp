// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace openvc::cuda {

/// A copy of bytes in a device's memory, usable on every stream when this returns.
std::shared_ptr<std::byte> copy_to_device(std::span<const std::byte> bytes, int device);

/// A copy of a device's bytes, once everything queued on the device has ended.
std::vector<std::byte> copy_to_host(const std::byte* bytes, std::size_t size, int device);

/// Whether what the stream of the device is given becomes part of a graph.
bool is_capturing(int device, void* stream);

/// Calls work(stream) with a stream of the device that nobody else uses; also while other streams
/// are being captured.
void on_own_stream(int device, const std::function<void(void* stream)>& work);

/// A copy of bytes in device memory of a stream, in the order of the stream.
std::shared_ptr<std::byte> upload(std::span<const std::byte> bytes, int device, void* stream);

/// A copy of a device's bytes, once everything queued on the stream has ended.
std::vector<std::byte> download(const std::byte* bytes, std::size_t size, int device, void* stream);

}  // namespace openvc::cuda
