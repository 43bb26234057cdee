// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/sm90/config.hpp"

namespace openvc::cuda::sm90 {

/// Shared memory of a block. Host code asks only for its size.
///
/// Tiles are K-major with 128-byte rows and the 128-byte swizzle (residual columns: 32-byte rows,
/// 32-byte swizzle), as the copy engine writes and wgmma reads them.
template <class Config>
struct alignas(1024) Storage {
  static constexpr KernelConfig kConfig = Config::kValue;
  static constexpr int kSteps = kConfig.max_extra_steps > 0 ? kConfig.max_extra_steps : 0;
  static constexpr int kColumnTile = numerics::kKeyBlock * kStepBytes;

  struct alignas(1024) KeyStage {
    std::uint8_t codes[numerics::kKeyBlock * numerics::kHeadDim];
    std::uint8_t columns[kSteps > 0 ? kSteps* kColumnTile : 1024];
  };
  struct alignas(1024) PlainKeyStage {
    std::uint8_t codes[numerics::kKeyBlock * numerics::kHeadDim];
  };
  template <bool kWithColumns, class = void>
  struct SelectStage {
    using Type = PlainKeyStage;
  };
  template <class Dummy>
  struct SelectStage<true, Dummy> {
    using Type = KeyStage;
  };

  alignas(1024) std::uint8_t query_codes[kRowsPerBlock * numerics::kHeadDim];
  alignas(1024) std::uint8_t query_columns[kSteps > 0 ? kSteps* kRowsPerBlock* kStepBytes : 1024];
  typename SelectStage<(kSteps > 0)>::Type keys[kConfig.key_stages];
  struct alignas(1024) ValueStage {
    std::uint8_t codes[numerics::kHeadDim * numerics::kKeyBlock];
    std::uint8_t ones[kOnesRows * numerics::kKeyBlock];
  } values[kConfig.value_stages];

  // Barriers, named for the event that completes a phase.
  alignas(8) std::uint64_t query_full;  // Q tile has arrived
  std::uint64_t query_empty;            // no product reads the Q tile any more
  std::uint64_t key_full[kConfig.key_stages];
  std::uint64_t key_empty[kConfig.key_stages];  // in every block that receives the stage
  std::uint64_t value_full[kConfig.value_stages];
  std::uint64_t value_empty[kConfig.value_stages];
};

}  // namespace openvc::cuda::sm90
