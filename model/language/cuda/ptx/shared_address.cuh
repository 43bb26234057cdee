// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "machine/machine.hpp"

namespace openvc::cuda::ptx {

inline std::uint32_t shared_address(const void* pointer) { return model::shared_address(pointer); }

}  // namespace openvc::cuda::ptx
