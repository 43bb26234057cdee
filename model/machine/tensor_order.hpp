// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "machine/clock.hpp"
#include "machine/machine.hpp"

namespace openvc::model {

/// What a warp or one of its threads does with tensor memory.
struct TensorDeed {
  enum class Kind : std::uint8_t { none, load, store, product };
  Kind kind = Kind::none;
  unsigned warp = 0;        // of the block
  unsigned thread = 0;      // of the block; of products
  std::uint64_t count = 0;  // of the warp's, of this kind
  const char* instruction = "";
  bool binary16 = false;  // sums of a product
};

/// Which deeds of a block have come before which: PTX ISA 9.0, 9.7.16.6.
///
/// A load or store is complete when its warp has waited for it, and happens before what others do
/// when every lane has then executed the fence before, something has synchronised the threads, and
/// the other thread has executed the fence after. A product is complete when its commit has
/// arrived. The clocks of warps carry both; every thread has a view of its own, which the fence
/// after brings up to its warp's clock.
class TensorOrder {
 public:
  TensorOrder(unsigned rank, unsigned warps);

  /// A deed of the warp that runs, not complete.
  TensorDeed begin(TensorDeed::Kind kind, const char* instruction);
  /// Loads or stores of the warp that runs are complete.
  void complete(TensorDeed::Kind kind);
  [[nodiscard]] bool is_complete(TensorDeed::Kind kind) const;
  /// Of the thread that runs.
  void fence_before();
  void fence_after();

  /// Empty, or why nothing says that a deed comes before another one, of the thread that runs.
  [[nodiscard]] std::string why_unordered(const TensorDeed& earlier, const TensorDeed& later) const;
  /// Empty, or why the warp that runs cannot know that a deed is complete.
  [[nodiscard]] std::string why_incomplete(const TensorDeed& deed) const;

 private:
  /// Loads or stores of a warp.
  struct Progress {
    std::uint64_t begun = 0;
    std::uint64_t complete = 0;
    std::array<std::uint64_t, kWarpLanes> fenced{};  // by a fence before, of each lane
    Party completed_party = 0;
    Party fenced_party = 0;

    [[nodiscard]] std::uint64_t fenced_by_all() const;
  };
  static constexpr std::size_t kKinds = 2;  // loads and stores
  [[nodiscard]] Progress& progress(TensorDeed::Kind kind, unsigned warp);
  [[nodiscard]] const Progress& progress(TensorDeed::Kind kind, unsigned warp) const;
  [[nodiscard]] bool is_in_views(Party party, const TensorDeed& earlier,
                                 const TensorDeed& later) const;

  unsigned rank_;
  std::vector<std::array<Progress, kKinds>> progress_;  // of each warp
  std::vector<Clock> views_;                            // of each thread
};

}  // namespace openvc::model
