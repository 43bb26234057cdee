// SPDX-License-Identifier: BSD-3-Clause
#include "timing/recorder.hpp"

#include <cstddef>
#include <utility>

namespace openvc::timing {
namespace {

constexpr int kSchedulers = 4;  // of a multiprocessor: a warp sits on that of its number

/// What becomes of an instruction of a class in the machine code.
struct Translation {
  Pipe pipe;
  double instructions;
};

/// The assembler joins two packed maxima that follow each other into one of three operands: of a
/// tile's 34 in the source, 19 are left (tests/sass/sm90_budget.json).
constexpr double kJoinedMaxima = 19.0 / 34.0;

constexpr Translation kTranslations[model::kInstructionClasses] = {
    {Pipe::fma, 1},
    {Pipe::fma_pair, 1},
    {Pipe::half, 1},
    {Pipe::half_add, 1},
    {Pipe::maximum, kJoinedMaxima},
    {Pipe::alu, 1},
    {Pipe::convert, 1},
    {Pipe::special, 1},
    {Pipe::exchange, 1},
    {Pipe::vote, 1},
};

}  // namespace

TraceRecorder::TraceRecorder(std::string name) {
  trace_.name = std::move(name);
  model::set_recorder(this);
}

TraceRecorder::~TraceRecorder() { model::set_recorder(nullptr); }

Trace TraceRecorder::take() {
  for (unsigned warp = 0; warp < writers_.size(); ++warp) (void)writer(warp);
  Trace taken = std::exchange(trace_, {});
  writers_.clear();
  counts_.clear();
  last_product_.clear();
  barriers_.clear();
  waited_.clear();
  return taken;
}

void TraceRecorder::begin_warp(unsigned, unsigned rank, unsigned warp_of_block,
                               const std::string& role) {
  writers_.emplace_back(trace_, role, static_cast<int>(rank),
                        static_cast<int>(warp_of_block) % kSchedulers);
  counts_.emplace_back();
  last_product_.emplace_back();
}

Writer& TraceRecorder::writer(unsigned warp) {
  Writer& writer = writers_.at(warp);
  for (std::size_t i = 0; i < model::kInstructionClasses; ++i) {
    std::int64_t& count = counts_[warp][i];
    if (count > 0) {
      writer.work(kTranslations[i].pipe,
                  static_cast<double>(count) * kTranslations[i].instructions);
    }
    count = 0;
  }
  return writer;
}

int TraceRecorder::barrier_index(const model::RecordedBarrier& barrier) {
  const auto [found, is_new] = barriers_.try_emplace({barrier.rank, barrier.offset}, 0);
  if (is_new) {
    found->second = trace_.add_barrier(barrier.name, static_cast<int>(barrier.rank),
                                       static_cast<int>(barrier.arrivals));
  }
  return found->second;
}

void TraceRecorder::wait(unsigned warp, const model::RecordedBarrier& barrier,
                         std::uint64_t phases) {
  const int index = barrier_index(barrier);
  std::int64_t& waited = waited_[{warp, index}];
  // The first phase of an empty stage is over before it begins; other lanes wait for the same.
  if (static_cast<std::int64_t>(phases) <= waited) return;
  waited = static_cast<std::int64_t>(phases);
  writer(warp).wait(index, waited);
}

void TraceRecorder::arrive(unsigned warp, const model::RecordedBarrier& barrier,
                           std::uint32_t bytes) {
  writer(warp).arrive(barrier_index(barrier), bytes);
}

void TraceRecorder::copy(unsigned warp, const char* instruction, std::uint32_t bytes,
                         const std::vector<model::RecordedBarrier>& receivers) {
  std::vector<Signal> signals;
  for (const auto& receiver : receivers) {
    signals.push_back({barrier_index(receiver), 0, static_cast<double>(bytes)});
  }
  writer(warp).start(instruction, bytes, std::move(signals));
}

void TraceRecorder::product(unsigned warp, const char* instruction) {
  writer(warp).start(instruction);
  last_product_[warp] = instruction;
}

void TraceRecorder::commit(unsigned warp) { writer(warp).commit().mark(last_product_[warp]); }

void TraceRecorder::wait_for_products(unsigned warp, int pending_groups) {
  writer(warp).wait_groups(pending_groups);
}

void TraceRecorder::block_product(unsigned warp, std::uint32_t columns) {
  writer(warp).start("tcgen05.mma.n" + std::to_string(columns)).commit();
}

void TraceRecorder::commit_block_products(unsigned warp,
                                          const std::vector<model::RecordedBarrier>& receivers) {
  std::vector<Signal> signals;
  for (const auto& receiver : receivers) signals.push_back({barrier_index(receiver), 1, 0});
  writer(warp).start("tcgen05.commit", 1, std::move(signals)).mark(receivers.front().name);
}

void TraceRecorder::column_access(unsigned warp, const char* instruction) {
  writer(warp).start(instruction);
}

void TraceRecorder::wait_for_column_accesses(unsigned warp) {
  writer(warp).commit().wait_groups(0);
}

}  // namespace openvc::timing
