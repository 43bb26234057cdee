// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>

namespace openvc::cuda {

/// Device memory in the order of a stream: usable by what is queued there from now on, returned to
/// the pool behind what is queued there when the last owner lets go.
std::shared_ptr<std::byte> allocate_on_stream(std::size_t bytes, int device, void* stream);

}  // namespace openvc::cuda
