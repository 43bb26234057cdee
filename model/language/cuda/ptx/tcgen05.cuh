// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/ptx/instruction_descriptor.cuh"
#include "machine/engines.hpp"

namespace openvc::cuda::ptx {

inline void tcgen05_mma_f8f6f4_ss(std::uint32_t d, std::uint64_t a, std::uint64_t b,
                                  std::uint32_t instruction_descriptor, bool accumulate) {
  model::multiply({.instruction = "tcgen05.mma.ss",
                   .d = d,
                   .a_in_tensor_memory = false,
                   .a = a,
                   .b = b,
                   .descriptor = instruction_descriptor,
                   .accumulate = accumulate});
}

inline void tcgen05_mma_f8f6f4_ts(std::uint32_t d, std::uint32_t a, std::uint64_t b,
                                  std::uint32_t instruction_descriptor, bool accumulate) {
  model::multiply({.instruction = "tcgen05.mma.ts",
                   .d = d,
                   .a_in_tensor_memory = true,
                   .a = a,
                   .b = b,
                   .descriptor = instruction_descriptor,
                   .accumulate = accumulate});
}

inline void tcgen05_commit(std::uint32_t barrier) {
  model::commit_block_products("tcgen05.commit", barrier, 0);
}
inline void tcgen05_commit_multicast(std::uint32_t barrier, std::uint16_t block_mask) {
  model::commit_block_products("tcgen05.commit.multicast", barrier, block_mask);
}

}  // namespace openvc::cuda::ptx
