// SPDX-License-Identifier: BSD-3-Clause
#include "timing/schedules/blackwell.hpp"

#include <cstdint>
#include <vector>

namespace openvc::timing {
namespace {

constexpr int kWarpgroupWarps = 4;
constexpr double kTileBytes = 128.0 * 128.0;
constexpr int kSteps = 4;  // of 32 along the reduction of either product

class BlackwellWriter {
 public:
  BlackwellWriter(const BlackwellSchedule& schedule, int blocks)
      : s_(schedule), blocks_(blocks), thread_blocks_(schedule.pair ? 2 : 1) {
    trace_.name = schedule.name;
    for (int slot = 0; slot < s_.ring_slots; ++slot) {
      const std::string number = "[" + std::to_string(slot) + "]";
      slot_full_.push_back(trace_.add_barrier("tile_full" + number, 0, thread_blocks_));
      slot_empty_.push_back(trace_.add_barrier("tile_empty" + number, 0, 1));
    }
    for (int block = 0; block < thread_blocks_; ++block) {
      for (int stage = 0; stage < s_.query_stages; ++stage) {
        const std::string number = "[" + std::to_string(stage) + "]";
        scores_full_.push_back(trace_.add_barrier("scores_full" + number, block, 1));
      }
    }
    // The issuer waits for the warps of both blocks of a pair.
    const int arrivals = kWarpgroupWarps * thread_blocks_;
    for (int stage = 0; stage < s_.query_stages; ++stage) {
      const std::string number = "[" + std::to_string(stage) + "]";
      first_codes_.push_back(trace_.add_barrier("first_codes" + number, 0, arrivals));
      other_codes_.push_back(trace_.add_barrier("other_codes" + number, 0, arrivals));
      scores_empty_.push_back(trace_.add_barrier("scores_empty" + number, 0, arrivals));
    }
  }

  Trace write() {
    for (int block = 0; block < thread_blocks_; ++block) {
      for (int stage = 0; stage < s_.query_stages; ++stage) write_softmax(block, stage);
    }
    for (int block = 0; block < thread_blocks_; ++block) write_loader(block);
    write_issuer();
    return std::move(trace_);
  }

 private:
  /// Of one thread block of a pair, half of every tile.
  void write_loader(int block) {
    Writer writer(trace_, "loader", block, 2);
    const double bytes = kTileBytes / thread_blocks_;
    // K and V of every block in turn.
    for (int tile = 0; tile < 2 * blocks_; ++tile) {
      const int slot = tile % s_.ring_slots;
      writer.wait(slot_empty_[slot], tile / s_.ring_slots);
      writer.arrive(slot_full_[slot], bytes);
      writer.start("tma.tile", bytes, {{slot_full_[slot], 0, bytes}});
    }
  }
  [[nodiscard]] static int tile_of_keys(int i) { return 2 * i; }
  [[nodiscard]] static int tile_of_values(int i) { return 2 * i + 1; }

  void write_softmax(int block, int stage) {
    const std::string role = "softmax " + std::to_string(stage);
    for (int warp = 0; warp < kWarpgroupWarps; ++warp) {
      Writer writer(trace_, role, block, warp);
      for (int i = 0; i < blocks_; ++i) {
        writer.wait(scores_full_[block * s_.query_stages + stage], i + 1);
        for (int part = 0; part < 4; ++part) {
          writer.start(s_.half_scores ? "tmem.load.half.x32" : "tmem.load.x32");
        }
        writer.commit().wait_groups(0);
        writer.arrive(scores_empty_[stage]);
        // 128 scores of a row: three-operand maxima, of pairs where they are binary16.
        writer.work(Pipe::maximum, s_.half_scores ? 33 : 64);
        writer.work(Pipe::fma, 2).work(Pipe::special, 1).work(Pipe::vote, 1);
        write_codes(writer);
        writer.arrive(first_codes_[stage]);
        write_codes(writer);
        writer.arrive(other_codes_[stage]);
      }
    }
  }

  /// Of 64 scores: 0.5 FFMA2, 0.5 conversions and 0.25 PRMT a score, or 0.5 HFMA2 and 0.25 PRMT.
  void write_codes(Writer& writer) const {
    constexpr double kScores = 64;
    if (s_.half_scores) {
      writer.work(Pipe::half, kScores / 2);
    } else {
      writer.work(Pipe::fma_pair, kScores / 2).work(Pipe::convert, kScores / 2);
    }
    writer.work(Pipe::alu, kScores / 4);
    writer.start("tmem.store.x16").commit().wait_groups(0);
  }

  /// One warp issues all products.
  void write_issuer() {
    Writer writer(trace_, "issuer", 0, 3);
    for (int stage = 0; stage < s_.query_stages; ++stage) issue_scores(writer, 0, stage);
    for (int i = 0; i < blocks_; ++i) {
      for (int stage = 0; stage < s_.query_stages; ++stage) {
        if (s_.scores_ahead && i + 1 < blocks_) issue_scores(writer, i + 1, stage);
        issue_values(writer, i, stage);
        if (!s_.scores_ahead && i + 1 < blocks_) issue_scores(writer, i + 1, stage);
      }
      writer.mark("block");
    }
  }

  void issue_scores(Writer& writer, int i, int stage) {
    const int tile = tile_of_keys(i);
    if (stage == 0) wait_for_tile(writer, tile);
    wait_for_buffer(writer, i, stage);
    const bool is_last = stage + 1 == s_.query_stages;
    std::vector<Signal> done;
    for (int block = 0; block < thread_blocks_; ++block) {
      done.push_back({scores_full_[block * s_.query_stages + stage], 1, 0});
    }
    if (is_last) done.push_back({slot_empty_[tile % s_.ring_slots], 1, 0});
    issue(writer, "mma.f8.n128", done);
  }

  /// The buffer that the scores of block i go to must have been read.
  void wait_for_buffer(Writer& writer, int i, int stage) {
    if (s_.score_buffers > 0) {
      if (i >= s_.score_buffers) writer.wait(scores_empty_[stage], i + 1 - s_.score_buffers);
      return;
    }
    // One buffer: the stage that had it last.
    if (stage > 0) writer.wait(scores_empty_[stage - 1], i + 1);
    if (stage == 0 && i > 0) writer.wait(scores_empty_[s_.query_stages - 1], i);
  }

  void issue_values(Writer& writer, int i, int stage) {
    const int tile = tile_of_values(i);
    writer.wait(first_codes_[stage], i + 1);
    if (stage == 0) wait_for_tile(writer, tile);
    const std::string product = "mma.f8.n" + std::to_string(s_.value_columns);
    for (int step = 0; step < kSteps / 2; ++step) writer.start(product);
    writer.commit();
    writer.wait(other_codes_[stage], i + 1);
    const bool is_last = stage + 1 == s_.query_stages;
    for (int step = kSteps / 2; step < kSteps; ++step) {
      std::vector<Signal> done;
      if (is_last && step + 1 == kSteps) done.push_back({slot_empty_[tile % s_.ring_slots], 1, 0});
      writer.start(product, 1, std::move(done));
    }
    writer.commit();
  }

  static void issue(Writer& writer, const std::string& product, const std::vector<Signal>& done) {
    for (int step = 0; step + 1 < kSteps; ++step) writer.start(product);
    writer.start(product, 1, done).commit();
  }

  void wait_for_tile(Writer& writer, int tile) {
    writer.wait(slot_full_[tile % s_.ring_slots], tile / s_.ring_slots + 1);
  }

  const BlackwellSchedule s_;
  const int blocks_;
  const int thread_blocks_;
  Trace trace_;
  std::vector<int> slot_full_, slot_empty_, scores_full_, first_codes_, other_codes_, scores_empty_;
};

}  // namespace

Trace write_blackwell(const BlackwellSchedule& schedule, int blocks) {
  return BlackwellWriter(schedule, blocks).write();
}

}  // namespace openvc::timing
