// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>

#include "gpu/attention_fixture.hpp"
#include "timing/recorder.hpp"
#include "timing/report.hpp"

// The clock model on the Hopper kernel as it ships.
namespace openvc::test {
namespace {

using namespace timing;

class TimingRecorder : public Sm90Test {};

/// Of tests/sass/sm90_budget.json: instructions of a warp and tile, Dense, narrow.
constexpr double kDenseInstructions = 218;
/// Clocks of its products on a tile of 128 x 128 scores.
constexpr double kDenseProducts = 1056;
constexpr const char* kBlockMark = "wgmma.m64n136k32.f32";

TEST_F(TimingRecorder, SeesTheWorkOfTheHopperKernel) {
  constexpr int kBlocks = 16;
  AttentionCase c = make_case(1, 1, 256, 128 * kBlocks);
  c.numerics.max_extra_steps = 0;
  c.with_log_sum_exp = false;
  const HostPrepared host(c, make_tensors(c));
  const DevicePrepared device(host);
  DeviceOutput out(c.problem, c.type);
  timing::TraceRecorder recorder("dense");
  run_on_device(device.view(), out);
  const Trace trace = recorder.take();

  ASSERT_EQ(trace.warps.size(), 24u);
  EXPECT_EQ(trace.warps[0].role, "key_loader");
  EXPECT_EQ(trace.warps[13].role, "value_loader");
  EXPECT_EQ(trace.warps[4].role, "consumer 0");
  const auto named = [&](const char* name) {
    return std::ranges::count(trace.barriers, std::string(name), &TraceBarrier::name);
  };
  EXPECT_EQ(named("key_full[4]"), 2);   // of both blocks
  EXPECT_EQ(named("key_empty[4]"), 1);  // of the owner

  const Timeline timeline = replay(trace, h200());
  const Steady steady = steady_state(timeline, kBlockMark, 3);
  EXPECT_GE(steady.clocks_per_block, kDenseProducts * 0.99);
  EXPECT_LE(steady.clocks_per_block, kDenseProducts * 1.05);

  double slots = 0;
  for (const Activity& activity : timeline.activities) {
    if (activity.kind == Activity::Kind::work && activity.unit == 4 &&
        activity.begin >= steady.window.begin && activity.begin < steady.window.end) {
      slots += activity.slots;
    }
  }
  EXPECT_NEAR(slots / steady.blocks, kDenseInstructions, 0.05 * kDenseInstructions);
}

TEST_F(TimingRecorder, SeesTheWorkOfTheBlackwellKernel) {
  constexpr int kBlocks = 12;
  AttentionCase c = make_case(1, 1, 256, 128 * kBlocks);
  c.kernel = &kBlackwell;
  c.numerics.max_extra_steps = 0;
  c.with_log_sum_exp = false;
  const HostPrepared host(c, make_tensors(c));
  const DevicePrepared device(host);
  DeviceOutput out(c.problem, c.type);
  timing::TraceRecorder recorder("blackwell");
  run_on_device(device.view(), out, true, nullptr, *c.kernel);
  const Trace trace = recorder.take();
  const auto started = [&](const std::string& role, const std::string& operation) {
    int count = 0;
    for (const TraceWarp& warp : trace.warps) {
      if (warp.block != 0 || warp.role != role) continue;
      for (const Step& step : warp.steps) {
        count += step.kind == Step::Kind::start &&
                 trace.names[static_cast<std::size_t>(step.name)] == operation;
      }
    }
    return count;
  };
  // Four k-steps of either product, for both tiles of queries; P V in two parts.
  EXPECT_EQ(started("multiplier", "tcgen05.mma.n128"), 8 * kBlocks);
  EXPECT_EQ(started("multiplier", "tcgen05.mma.n80"), 8 * kBlocks);
  EXPECT_EQ(started("multiplier", "tcgen05.mma.n64"), 8 * kBlocks);
  constexpr int kConsumerWarps = 4;
  EXPECT_EQ(started("consumer 1", "tcgen05.ld.32x32b.x64.pack::16b"), kConsumerWarps * kBlocks);
  const Steady steady = steady_state(replay(trace, b200()), "score_full[0]", 3);
  constexpr double kProducts = 2 * (256 + 288);  // clocks
  EXPECT_GE(steady.clocks_per_block, kProducts);
}

TEST_F(TimingRecorder, WatchesNothingAfterItsEnd) {
  AttentionCase c = make_case(1, 1, 128, 128);
  c.numerics.max_extra_steps = 0;
  const HostPrepared host(c, make_tensors(c));
  const DevicePrepared device(host);
  DeviceOutput out(c.problem, c.type);
  {
    timing::TraceRecorder recorder("dense");
    run_on_device(device.view(), out);
    EXPECT_FALSE(recorder.take().warps.empty());
    EXPECT_TRUE(recorder.take().warps.empty());
  }
  EXPECT_NO_THROW(run_on_device(device.view(), out));
}

}  // namespace
}  // namespace openvc::test
