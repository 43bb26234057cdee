// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/attention/storage.cuh"
#include "cuda/sm100/config.hpp"

namespace openvc::cuda::sm100 {

/// Shared memory of a block: tiles, and what multiplier and consumers tell each other.
template <class Config>
struct Storage : TileStorage<Config> {
  // Barriers, named for the event that completes a phase.
  alignas(8) std::uint64_t score_full[kQueryTiles];  // scores of a query tile are in tensor memory
  // Of each query tile and part of its probabilities: they are in tensor memory.
  std::uint64_t probability_full[kQueryTiles * tensor_memory::kProbabilityParts];
  // Of each query tile and part of the sums: at tile * kPartialParts + part.
  std::uint64_t partial_full[kQueryTiles * tensor_memory::kPartialParts];   // sums are there
  std::uint64_t partial_empty[kQueryTiles * tensor_memory::kPartialParts];  // they have been read

  std::uint32_t tensor_memory;  // address of the columns that the block has allocated
};

}  // namespace openvc::cuda::sm100
