// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>

#include <string>

#include "timing/replay.hpp"
#include "timing/report.hpp"

// The clock model on traces whose times are known by hand.
namespace openvc::timing {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kProduct = 40;
constexpr double kCopy = 100;
constexpr double kLatency = 5;
constexpr double kArrival = 3;
constexpr double kPeerArrival = 30;
constexpr double kWake = 2;

/// One clock for an instruction, two in the ALU; nothing else takes any but what is named above.
MachineConstants machine() {
  MachineConstants m;
  m.name = "test machine";
  for (auto& pipe : m.pipes) pipe = {0, {1, "", ""}, {0, "", ""}};
  m.pipes[static_cast<std::size_t>(Pipe::alu)] = {1, {2, "", ""}, {0, "", ""}};
  m.engines["products"] = {Scope::block, Turns::in_order, {0, "", ""}, {0, "", ""}};
  m.engines["copies"] = {Scope::block, Turns::in_order, {0, "", ""}, {0, "", ""}};
  const Constant zero{};
  m.operations["product"] = {"products", {kProduct, "", ""}, {kLatency, "", ""}, zero, zero};
  m.operations["copy"] = {"copies", {kCopy, "", ""}, {kLatency, "", ""}, zero, zero};
  m.arrival = {kArrival, "", ""};
  m.cluster_arrival = {kPeerArrival, "", ""};
  m.wake = {kWake, "", ""};
  return m;
}

double clocks(const Trace& trace, const MachineConstants& m = machine()) {
  return replay(trace, m).clocks;
}

TEST(TimingReplay, AChainTakesTheSumOfItsParts) {
  Trace trace{.name = "chain", .names = {}, .barriers = {}, .warps = {}};
  const int full = trace.add_barrier("full", 0, 1);
  const int done = trace.add_barrier("done", 0, 1);
  Writer(trace, "first", 0, 0).work(Pipe::other, 10).start("copy", 1, {{full, 1, 0}});
  Writer(trace, "second", 0, 1).wait(full, 1).work(Pipe::alu, 4).arrive(done);
  Writer(trace, "third", 0, 2).wait(done, 1).work(Pipe::other, 7);
  // The last of four ALU instructions is issued six clocks after the first.
  EXPECT_EQ(clocks(trace), 10 + kCopy + kLatency + kWake + 7 + kArrival + kWake + 7);
}

TEST(TimingReplay, EnginesWorkBesideEachOther) {
  Trace trace{.name = "two engines", .names = {}, .barriers = {}, .warps = {}};
  Writer(trace, "warp", 0, 0)
      .start("product")
      .start("copy")
      .start("product")
      .commit()
      .wait_groups(0);
  EXPECT_EQ(clocks(trace), kCopy + kLatency);
}

TEST(TimingReplay, AnEngineWorksInOrder) {
  Trace trace{.name = "one engine", .names = {}, .barriers = {}, .warps = {}};
  Writer writer(trace, "warp", 0, 0);
  for (int i = 0; i < 5; ++i) writer.start("product").commit();
  writer.wait_groups(2).work(Pipe::other, 1);  // three are over
  EXPECT_EQ(clocks(trace), 5 * kProduct + kLatency);
  const Timeline timeline = replay(trace, machine());
  const auto last = std::ranges::find_if(timeline.activities, [](const Activity& activity) {
    return activity.kind == Activity::Kind::work;
  });
  ASSERT_NE(last, timeline.activities.end());
  EXPECT_EQ(last->begin, 3 * kProduct + kLatency);
}

TEST(TimingReplay, ARingThatIsTooShortLimits) {
  Trace trace{.name = "ring", .names = {}, .barriers = {}, .warps = {}};
  constexpr int kTiles = 20, kStages = 2;
  constexpr double kUse = 10;
  int full[kStages], empty[kStages];
  for (int i = 0; i < kStages; ++i) {
    full[i] = trace.add_barrier("full[" + std::to_string(i) + "]", 0, 1);
    empty[i] = trace.add_barrier("empty[" + std::to_string(i) + "]", 0, 1);
  }
  MachineConstants m = machine();
  // Copies are short and far: a stage takes 205 clocks, an engine without a ring 10.
  m.operations["copy"].clocks.value = 10;
  m.operations["copy"].latency.value = 195;
  Writer loader(trace, "loader", 0, 0);
  Writer reader(trace, "reader", 0, 1);
  for (int i = 0; i < kTiles; ++i) {
    loader.wait(empty[i % kStages], i / kStages).start("copy", 1, {{full[i % kStages], 1, 0}});
    reader.wait(full[i % kStages], i / kStages + 1).work(Pipe::other, kUse);
    reader.arrive(empty[i % kStages]).mark("tile");
  }
  const Steady steady = steady_state(replay(trace, m), "tile", 4);
  EXPECT_EQ(steady.clocks_per_block, (10 + 195 + kWake + kUse + kArrival + kWake) / kStages);
}

TEST(TimingReplay, WarpsOfASchedulerShareItsSlots) {
  const auto two = [](int scheduler) {
    Trace trace{.name = "slots", .names = {}, .barriers = {}, .warps = {}};
    Writer(trace, "one", 0, 0).work(Pipe::other, 100);
    Writer(trace, "other", 0, scheduler).work(Pipe::alu, 40);  // of another unit
    return clocks(trace);
  };
  // Who issued last goes on; then the other's 40, every second clock.
  EXPECT_EQ(two(0), 100 + 2 * 40 - 1);
  EXPECT_EQ(two(1), 100);
}

TEST(TimingReplay, InstructionsOfUnlikeUnitsOverlap) {
  Trace trace{.name = "units", .names = {}, .barriers = {}, .warps = {}};
  Writer(trace, "warp", 0, 0).work(Pipe::alu, 50).work(Pipe::other, 50);
  EXPECT_EQ(clocks(trace), 100);
}

TEST(TimingReplay, APeerIsFurtherAway) {
  Trace trace{.name = "cluster", .names = {}, .barriers = {}, .warps = {}};
  const int near = trace.add_barrier("near", 0, 1);
  const int far = trace.add_barrier("far", 1, 1);
  Writer(trace, "sender", 0, 0).arrive(near).arrive(far);
  Writer(trace, "receiver", 1, 0).wait(far, 1).work(Pipe::other, 1);
  EXPECT_EQ(clocks(trace), kPeerArrival + kWake + 1);
}

TEST(TimingReplay, BytesCompleteAPhase) {
  Trace trace{.name = "bytes", .names = {}, .barriers = {}, .warps = {}};
  const int full = trace.add_barrier("full", 0, 1);
  Writer(trace, "loader", 0, 0)
      .arrive(full, 32)
      .start("copy", 1, {{full, 0, 16}})
      .start("copy", 1, {{full, 0, 16}});
  Writer(trace, "reader", 0, 1).wait(full, 1).work(Pipe::other, 1);
  EXPECT_EQ(clocks(trace), 2 * kCopy + kLatency + kWake + 1);
}

TEST(TimingReplay, AWarpKeepsItsTurnWhereTheEngineLetsIt) {
  const auto first_ends = [](Turns turns) {
    MachineConstants m = machine();
    m.engines["products"].turns = turns;
    Trace trace{.name = "turns", .names = {}, .barriers = {}, .warps = {}};
    for (const int scheduler : {0, 1}) {
      Writer(trace, "warp", 0, scheduler)
          .start("product")
          .work(Pipe::other, 1)
          .start("product")
          .commit()
          .wait_groups(0)
          .mark("done");
    }
    const Timeline timeline = replay(trace, m);
    return timeline.marks.front().time;
  };
  EXPECT_EQ(first_ends(Turns::in_order), 3 * kProduct + kLatency);
  EXPECT_EQ(first_ends(Turns::same_warp), 2 * kProduct + kLatency);
}

TEST(TimingReplay, TheSameTraceTakesTheSameTime) {
  Trace trace{.name = "again", .names = {}, .barriers = {}, .warps = {}};
  for (int warp = 0; warp < 8; ++warp) {
    Writer writer(trace, "warp", 0, warp % 4);
    for (int i = 0; i < 20; ++i) {
      writer.work(Pipe::alu, 3 + warp).work(Pipe::fma, 5).start("product").commit().wait_groups(1);
    }
  }
  const std::string once = perfetto_json(replay(trace, machine()), "a");
  EXPECT_EQ(once, perfetto_json(replay(trace, machine()), "a"));
}

TEST(TimingReplay, NamesWhatIsBusyAndWhatEverythingWaitsFor) {
  Trace trace{.name = "path", .names = {}, .barriers = {}, .warps = {}};
  Writer writer(trace, "worker", 0, 0);
  for (int i = 0; i < 6; ++i) {
    writer.work(Pipe::other, 15).start("product").commit().wait_groups(0).mark("block");
  }
  const Timeline timeline = replay(trace, machine());
  const Steady steady = steady_state(timeline, "block", 1);
  constexpr double kBlock = 15 + kProduct + kLatency;
  EXPECT_EQ(steady.clocks_per_block, kBlock);
  const auto shares = busy_shares(timeline, steady.window);
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares[0].unit, "products");
  EXPECT_DOUBLE_EQ(shares[0].busy, kProduct / kBlock);
  EXPECT_EQ(shares[1].unit, "issue slots");
  EXPECT_DOUBLE_EQ(shares[1].busy, 15 / kBlock);
  const auto path = critical_path(timeline, steady);
  ASSERT_GE(path.size(), 3u);
  EXPECT_EQ(path[0].what, "product");
  EXPECT_DOUBLE_EQ(path[0].clocks, kProduct * steady.blocks);
  EXPECT_EQ(path[1].what, "instructions of worker");
  double sum = 0;
  for (const PathPart& part : path) sum += part.clocks;
  EXPECT_DOUBLE_EQ(sum, kBlock * steady.blocks);
  EXPECT_THAT(svg_page(timeline, steady.window, "a <page>"), HasSubstr("a (page>"));
  EXPECT_THAT(describe(timeline, steady), HasSubstr("60.0 clocks a block"));
}

TEST(TimingReplay, RefusesWhatNoMachineDoes) {
  const auto refuses = [](const Trace& trace, const char* text) {
    EXPECT_THAT([&] { (void)clocks(trace); }, ThrowsMessage<TraceError>(HasSubstr(text)));
  };
  const Trace empty{.name = "bad", .names = {}, .barriers = {}, .warps = {}};
  Trace trace = empty;
  Writer(trace, "warp", 0, 0).start("transpose").commit();
  refuses(trace, "bad: warp, step 0: operation 'transpose'; test machine knows copy, product");

  trace = empty;
  Writer(trace, "warp", 0, 4).work(Pipe::other, 1);
  refuses(trace, "scheduler 4; expected one of the 4 of test machine");

  trace = empty;
  Writer(trace, "warp", 0, 0).wait(2, 1);
  refuses(trace, "step 0: barrier 2; the trace has 0");

  trace = empty;
  Writer(trace, "warp", 0, 0).start("product");
  refuses(trace, "1 operations are never committed and signal nothing");

  trace = empty;
  const int full = trace.add_barrier("full", 0, 1);
  Writer(trace, "reader", 0, 0).wait(full, 1);
  refuses(trace, "reader of block 0, step 0: phase 1 of full, which has completed 0");

  trace = empty;
  trace.add_barrier("full", 0, 1);
  Writer(trace, "warp", 0, 0).arrive(full, 0, 2);
  refuses(trace, "barrier full, phase 0: more arrivals than the 1 of a phase");

  trace = empty;
  trace.add_barrier("full", 0, 0);
  refuses(trace, "barrier full: 0 arrivals a phase; expected 1 or more");

  trace = empty;
  Writer(trace, "warp", 0, 0).mark("block");
  EXPECT_THAT([&] { (void)steady_state(replay(trace, machine()), "block", 2); },
              ThrowsMessage<TraceError>(HasSubstr("1 marks; expected more than 5")));
}

TEST(MachineConstants, HaveAUnitAndASource) {
  for (const char* name : {"h200", "b200", "b300", "rtx5090", "rtx4090"}) {
    SCOPED_TRACE(name);
    const MachineConstants& m = machine_constants(name);
    EXPECT_EQ(m.name, std::string(name));
    EXPECT_GT(m.multiprocessors, 0);
    const auto check = [](const Constant& constant, const std::string& what) {
      EXPECT_NE(std::string(constant.unit), "") << what;
      EXPECT_NE(std::string(constant.source), "") << what;
      EXPECT_GE(constant.value, 0) << what;
    };
    for (std::size_t p = 0; p < kPipes; ++p) {
      check(m.pipes[p].interval, pipe_name(static_cast<Pipe>(p)));
      check(m.pipes[p].stall, pipe_name(static_cast<Pipe>(p)));
      EXPECT_GE(m.pipes[p].interval.value, 1) << pipe_name(static_cast<Pipe>(p));
    }
    for (const auto& [engine, constants] : m.engines) {
      check(constants.depth, engine);
      check(constants.fma_stolen, engine);
    }
    for (const auto& [operation, constants] : m.operations) {
      EXPECT_TRUE(m.engines.contains(constants.engine)) << operation;
      check(constants.clocks, operation);
      check(constants.latency, operation);
      check(constants.slots, operation);
      check(constants.issue, operation);
    }
    check(m.megahertz, "megahertz");
    check(m.arrival, "arrival");
    check(m.cluster_arrival, "cluster_arrival");
    check(m.wake, "wake");
    check(m.group_wake, "group_wake");
    check(m.wait_slots, "wait_slots");
    check(m.arrive_slots, "arrive_slots");
    check(m.group_slots, "group_slots");
    check(m.shared_rate, "shared_rate");
  }
  EXPECT_THAT(
      [] { (void)machine_constants("h100"); },
      ThrowsMessage<std::invalid_argument>(HasSubstr("'h100'; expected one of h200, b200")));
}

}  // namespace
}  // namespace openvc::timing
