// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "openvc/tensor_view.hpp"

// Values in messages.
namespace openvc::api {

/// "[1, 2, 3, 4]".
std::string describe(std::span<const std::int64_t> values);

/// "cpu" or "cuda:1".
std::string describe(Device device);

/// "1.3 GiB".
std::string describe_bytes(std::size_t bytes);

}  // namespace openvc::api
