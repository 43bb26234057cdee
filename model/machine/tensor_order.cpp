// SPDX-License-Identifier: BSD-3-Clause
#include "machine/tensor_order.hpp"

#include <algorithm>

#include "machine/cluster.hpp"

namespace openvc::model {
namespace {

using Kind = TensorDeed::Kind;

std::string wait_of(Kind kind) {
  return kind == Kind::load ? "tcgen05.wait::ld" : "tcgen05.wait::st";
}

std::string warp_of(unsigned rank, const TensorDeed& deed) {
  return cluster().describe_warp(rank * cluster().grid().threads + deed.warp * kWarpLanes);
}

}  // namespace

TensorOrder::TensorOrder(unsigned rank, unsigned warps)
    : rank_(rank), progress_(warps), views_(std::size_t{warps} * kWarpLanes) {
  for (auto& kinds : progress_) {
    for (Progress& mine : kinds) {
      mine.completed_party = cluster().new_party();
      mine.fenced_party = cluster().new_party();
    }
  }
}

std::uint64_t TensorOrder::Progress::fenced_by_all() const {
  return *std::ranges::min_element(fenced);
}

TensorOrder::Progress& TensorOrder::progress(Kind kind, unsigned warp) {
  return progress_[warp][kind == Kind::load ? 0 : 1];
}

const TensorOrder::Progress& TensorOrder::progress(Kind kind, unsigned warp) const {
  return progress_[warp][kind == Kind::load ? 0 : 1];
}

TensorDeed TensorOrder::begin(Kind kind, const char* instruction) {
  const unsigned warp = cluster().warp();
  return {.kind = kind,
          .warp = warp,
          .thread = cluster().thread_in_block(),
          .count = ++progress(kind, warp).begun,
          .instruction = instruction};
}

void TensorOrder::complete(Kind kind) {
  Progress& mine = progress(kind, cluster().warp());
  mine.complete = mine.begun;
  cluster().clock().raise(mine.completed_party, mine.complete);
}

bool TensorOrder::is_complete(Kind kind) const {
  const Progress& mine = progress(kind, cluster().warp());
  return mine.complete == mine.begun;
}

void TensorOrder::fence_before() {
  for (Progress& mine : progress_[cluster().warp()]) {
    mine.fenced.at(static_cast<std::size_t>(lane())) = mine.complete;
    cluster().clock().raise(mine.fenced_party, mine.fenced_by_all());
  }
}

void TensorOrder::fence_after() { views_[cluster().thread_in_block()].join(cluster().clock()); }

/// Whether the threads of a deed know of one before it.
bool TensorOrder::is_in_views(Party party, const TensorDeed& earlier,
                              const TensorDeed& later) const {
  if (later.kind == Kind::product) return views_[later.thread].at(party) >= earlier.count;
  const Clock* first = views_.data() + std::size_t{later.warp} * kWarpLanes;
  return std::all_of(first, first + kWarpLanes,
                     [&](const Clock& view) { return view.at(party) >= earlier.count; });
}

std::string TensorOrder::why_unordered(const TensorDeed& earlier, const TensorDeed& later) const {
  if (earlier.kind == Kind::none) return {};
  const bool is_product = earlier.kind == Kind::product;
  // Products of a thread run in the order of their issue.
  if (is_product && later.kind == Kind::product && later.thread == earlier.thread) return {};
  if (!is_product && earlier.warp == later.warp) {
    if (progress(earlier.kind, earlier.warp).complete >= earlier.count) return {};
    return "no " + wait_of(earlier.kind) + " of the warp has followed";
  }
  const Party party = is_product ? cluster().product_party(rank_, earlier.warp)
                                 : progress(earlier.kind, earlier.warp).fenced_party;
  if (is_in_views(party, earlier, later)) return {};
  if (cluster().clock().at(party) >= earlier.count) {
    std::string text = "no tcgen05.fence::after_thread_sync of ";
    text += later.kind == Kind::product ? "the thread" : "every lane";
    return text + " since the warp has waited for that";
  }
  if (is_product) return "the warp has waited for no tcgen05.commit that covers it";
  const Progress& other = progress(earlier.kind, earlier.warp);
  if (other.complete < earlier.count) {
    return "no " + wait_of(earlier.kind) + " of " + warp_of(rank_, earlier) + " has followed";
  }
  if (other.fenced_by_all() < earlier.count) {
    return "no tcgen05.fence::before_thread_sync of every lane of " + warp_of(rank_, earlier) +
           " has followed";
  }
  return "nothing orders that before this";
}

std::string TensorOrder::why_incomplete(const TensorDeed& deed) const {
  if (deed.kind == Kind::none) return {};
  const bool is_product = deed.kind == Kind::product;
  const Party party = is_product ? cluster().product_party(rank_, deed.warp)
                                 : progress(deed.kind, deed.warp).completed_party;
  if (cluster().clock().at(party) >= deed.count) return {};
  if (is_product) return "the warp has waited for no tcgen05.commit that covers it";
  if (progress(deed.kind, deed.warp).complete < deed.count) {
    return "no " + wait_of(deed.kind) + " of " + warp_of(rank_, deed) + " has followed";
  }
  return "nothing orders that before this";
}

}  // namespace openvc::model
