// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "machine/recorder.hpp"
#include "timing/trace.hpp"

namespace openvc::timing {

/// Makes a trace of the first cluster of a launch. Between construction and destruction all
/// launches are watched; take() after one.
///
/// Every commit leaves a mark: with the name of the group's last product, or, of tcgen05, with that
/// of the barrier that is told.
class TraceRecorder : public model::Recorder {
 public:
  explicit TraceRecorder(std::string name);
  ~TraceRecorder() override;
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  Trace take();

  void begin_warp(unsigned warp, unsigned rank, unsigned warp_of_block,
                  const std::string& role) override;
  model::InstructionCounts& counts(unsigned warp) override { return counts_.at(warp); }
  void wait(unsigned warp, const model::RecordedBarrier& barrier, std::uint64_t phases) override;
  void arrive(unsigned warp, const model::RecordedBarrier& barrier, std::uint32_t bytes) override;
  void copy(unsigned warp, const char* instruction, std::uint32_t bytes,
            const std::vector<model::RecordedBarrier>& receivers) override;
  void product(unsigned warp, const char* instruction) override;
  void commit(unsigned warp) override;
  void wait_for_products(unsigned warp, int pending_groups) override;
  void block_product(unsigned warp, std::uint32_t columns) override;
  void commit_block_products(unsigned warp,
                             const std::vector<model::RecordedBarrier>& receivers) override;
  void column_access(unsigned warp, const char* instruction) override;
  void wait_for_column_accesses(unsigned warp) override;

 private:
  /// The warp's writer, behind the instructions that it has executed since the last step.
  Writer& writer(unsigned warp);
  int barrier_index(const model::RecordedBarrier& barrier);

  Trace trace_;
  std::vector<Writer> writers_;
  std::vector<model::InstructionCounts> counts_;
  std::vector<std::string> last_product_;
  std::map<std::pair<unsigned, std::uint32_t>, int> barriers_;
  std::map<std::pair<unsigned, int>, std::int64_t> waited_;  // warp, barrier: phases
};

}  // namespace openvc::timing
