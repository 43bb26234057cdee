// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace openvc::model {

/// Number of a party whose deeds a clock counts: a warp, its products, or a barrier.
using Party = std::uint32_t;

/// A vector clock: how many deeds of each party have happened before.
class Clock {
 public:
  [[nodiscard]] std::uint64_t at(Party party) const {
    return party < counts_.size() ? counts_[party] : 0;
  }
  void raise(Party party, std::uint64_t count) {
    if (party >= counts_.size()) counts_.resize(party + 1);
    counts_[party] = std::max(counts_[party], count);
  }
  void join(const Clock& other) {
    if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size());
    for (std::size_t i = 0; i < other.counts_.size(); ++i) {
      counts_[i] = std::max(counts_[i], other.counts_[i]);
    }
  }
  /// Leaves the deeds of a party out.
  void forget(Party party) {
    if (party < counts_.size()) counts_[party] = 0;
  }
  /// Whether all that happened before the other has happened before this.
  [[nodiscard]] bool covers(const Clock& other) const {
    for (Party party = 0; party < other.counts_.size(); ++party) {
      if (at(party) < other.counts_[party]) return false;
    }
    return true;
  }

 private:
  std::vector<std::uint64_t> counts_;
};

}  // namespace openvc::model
