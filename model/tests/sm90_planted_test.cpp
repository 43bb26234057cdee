// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "attention_scene.hpp"
#include "planted.hpp"

// Faults planted into the Hopper kernel, as if a line of it were missing or wrong: every schedule
// sees each, with a message that names place and cause.
namespace openvc::test {
namespace {

using Kind = model::Mutation::Kind;
using testing::ContainsRegex;

constexpr const char* kExpectCluster = "mbarrier.arrive.expect_tx.cluster";
constexpr const char* kArriveCluster = "mbarrier.arrive.cluster";
constexpr const char* kMulticast = "cp.async.bulk.tensor.3d.multicast";
constexpr const char* kScores = "wgmma.m64n128k32.f16";
constexpr const char* kValues = "wgmma.m64n136k32.f32";

const Planted kPlanted[] = {
    // ---- waits ----
    {"NoWaitForQueries",
     {Kind::skip, kWait, "query_full"},
     "consumer.*row .* of A .*(query_loader. (that writes it is in flight|has written it.*phase 0 "
     "of query_full)|nobody has written it)"},
    {"NoWaitForKeys",
     {Kind::skip, kWait, "key_full"},
     "consumer.*row .* of B .*(key_loader. (that writes it is in flight|has written it.*phase 0 of "
     "key_full.0)|nobody has written it)"},
    {"NoWaitForValues",
     {Kind::skip, kWait, "value_full"},
     "consumer.*row .* of B .*(value_loader. (that writes it is in flight|has written it.*phase 0 "
     "of value_full.0)|nobody has written it)"},
    {"NoWaitForFreeQueries",
     {Kind::skip, kWait, "query_empty"},
     "query_loader.: (.*nobody has waited for: phase 0 of query_full|.*one arrival too many at "
     "query_full)"},
    {"NoWaitForFreeKeys",
     {Kind::skip, kWait, "key_empty"},
     "key_loader.: (.*nobody has waited for: phase 0 of key_full|.*one arrival too many at "
     "key_full)"},
    {"NoWaitForFreeValues",
     {Kind::skip, kWait, "value_empty"},
     "value_loader.: (.*nobody has waited for: phase 0 of value_full|.*one arrival too many at "
     "value_full)"},
    {"WrongParityOfQueries",
     {Kind::change, kWait, "query_full", 1},
     "deadlock.*parity 1 of query_full|row .* of A .*query_loader"},
    {"WrongParityOfKeys",
     {Kind::change, kWait, "key_full", 1},
     "deadlock.*parity 1 of key_full|row .* of B .*(key_loader|nobody)"},
    {"WrongParityOfFreeKeys",
     {Kind::change, kWait, "key_empty", 1},
     "deadlock.*key_loader. waits with 1 lane for parity 0 of key_empty.0.*phase 0 lacks 16 of 16"},
    // ---- arrivals ----
    {"QueriesNotGivenBack",
     {Kind::skip, kArrive, "query_empty"},
     "deadlock.*query_loader. waits .* of query_empty.*phase 0 lacks 8 of 8"},
    {"KeysNotGivenBack",
     {Kind::skip, kArriveCluster, "key_empty"},
     "deadlock.*key_loader. waits .* of key_empty.0.*phase 0 lacks 16 of 16"},
    {"ValuesNotGivenBackByOneWarp",
     {Kind::skip, kArriveCluster, "value_empty", 0, 5},
     "deadlock.*value_loader. waits .* of value_empty.0.*phase 0 lacks 2 of 16"},
    {"KeysGivenBackTwice",
     {Kind::repeat, kArriveCluster, "key_empty"},
     "phase 1 of key_empty.* completes before all .*key_loader|key_loader.*(nobody has waited "
     "for|nothing orders|one arrival too many)"},
    {"ValuesGivenBackTwiceByOneWarp",
     {Kind::repeat, kArriveCluster, "value_empty", 0, 5},
     "phase 1 of value_empty.* completes before all .*value_loader|value_loader.*(nobody has "
     "waited "
     "for|nothing orders a product|one arrival too many)|deadlock.*value_"},
    {"QueriesGivenBackTwice",
     {Kind::repeat, kArrive, "query_empty"},
     "phase 1 of query_empty.* completes before all .*query_loader|query_loader.*nothing orders a "
     "product|deadlock.*query_"},
    {"KeysExpectedTwice",
     {Kind::repeat, kExpectCluster, "key_full"},
     "key_loader.*one arrival too many at key_full|row .* of B .*(key_loader|nobody)|phase 1 of "
     "key_full.* completes before all|deadlock.*key_full.0"},
    {"FewerReaders",
     {Kind::change, kInit, "key_empty", -1},
     "key_loader.*(nothing orders a product|nobody has waited for|one arrival too many)|deadlock"},
    {"MoreReaders",
     {Kind::change, kInit, "value_empty", 1},
     "deadlock.*value_loader. waits .* of value_empty.0.*phase 0 lacks 1 of 17"},
    // ---- bytes ----
    {"MoreBytesOfQueries",
     {Kind::change, kExpect, "query_full", 16},
     "deadlock.*query_full.*phase 0 lacks 0 of 1 arrivals and 16 bytes"},
    {"FewerBytesOfQueries",
     {Kind::change, kExpect, "query_full", -16},
     "query_loader.*query_full.*phase 0: 16 bytes more than were expected"},
    {"MoreBytesOfKeys",
     {Kind::change, kExpectCluster, "key_full", 16384},
     "deadlock.*key_full.0.*phase 0 lacks 0 of 1 arrivals and 16384 bytes"},
    {"FewerBytesOfValues",
     {Kind::change, kExpectCluster, "value_full", -128},
     "value_loader.*value_full.*phase 0: 128 bytes more than were expected"},
    {"NothingExpectedOfKeys",
     {Kind::skip, kExpectCluster, "key_full"},
     "deadlock.*key_full.0.*phase 0 lacks 1 of 1 arrivals and -16384 bytes"},
    {"NoCodeOfValues",
     {Kind::skip, "cp.async.bulk"},
     "deadlock.*query_full.*phase 0 lacks 0 of 1 arrivals and 1024 bytes"},
    {"TileNotCopied",
     {Kind::skip, kMulticast, "", 0, 0},
     "deadlock.*key_full.0.*phase 0 lacks 0 of 1 arrivals and 16384 bytes"},
    {"TileBesideItsPlace",
     {Kind::change, kMulticast, "", 64, 1},
     "value_loader.*a tile at 0x18440, no multiple of 128"},
    {"TileInAnotherPlace",
     {Kind::change, kTile, "", 128},
     "_loader.*writes to 0x4400 .*(as does a copy in flight|nobody has waited for)"},
    // ---- products ----
    {"NoFenceOfProducts", {Kind::skip, "wgmma.fence"}, "consumer.*no wgmma.fence since"},
    {"NoCommitOfProducts",
     {Kind::skip, "wgmma.commit_group"},
     "key_loader.*nothing orders a product of .*consumer .* that reads there|A has changed"},
    {"NoWaitForProducts",
     {Kind::skip, "wgmma.wait_group"},
     "key_loader.*nothing orders a product of .*consumer .* that reads there|A has changed"},
    {"WaitForOneGroupTooFew",
     {Kind::change, "wgmma.wait_group", "", 1},
     "key_loader.*nothing orders a product of .*consumer .* that reads there|A has changed"},
    {"WrongStrideOfKeys",
     {Kind::change, kScores, "", std::int64_t{8} << 32},
     "row 8 of B .*expected row 8, .* found row 9, .*stride byte offset of the descriptor is 1152"},
    {"WrongSwizzleOfValues",
     {Kind::change, kValues, "", std::int64_t{1} << 62},
     "the descriptor says a swizzle of 64 bytes, the tile was copied with one of 128"},
    {"WrongStartOfValues",
     {Kind::change, kValues, "", 64},
     "row 128 of B .*value_loader. .*phase 0 of value_full.1|row 128 of B .*nobody has written"},
    {"OneWarpMultipliesOtherKeys",
     {Kind::change, kScores, "", 2, 6},
     "another warp of the warpgroup issued wgmma.m64n128k32.f16, or with other|expected a multiple "
     "of 1024"},
    {"LaneWithoutFence",
     {Kind::skip, "wgmma.fence", "", 0, 7, 13},
     "while other lanes of the warp are in wgmma"},
    // ---- blocks and clusters ----
    {"NoFenceBehindInitialisation",
     {Kind::skip, "fence.mbarrier_init"},
     "_loader.*no fence.mbarrier_init after the initialisation of"},
    {"NoClusterBarrierBehindInitialisation",
     {Kind::skip, "barrier.cluster", "", 0, -1, -1, 1, 2},
     "nothing orders the initialisation of .* before this|has not been initialised"},
    {"BlockEndsBeforeItsPeer",
     {Kind::skip, "barrier.cluster", "", 0, -1, -1, 3, 4},
     "of a block that has ended|the block ends, and nothing orders an arrival of another block|has "
     "ended, and the copy"},
    {"RegistersNotGivenBack",
     {Kind::skip, "setmaxnreg.dec"},
     "deadlock.*consumer .*waits with 32 lanes for registers, of which 0 are free"},
};

class ModelPlanted : public Sm90Test {};
class ModelPlantedLines : public ModelPlanted, public testing::WithParamInterface<Planted> {};

TEST_P(ModelPlantedLines, IsSeenByEverySchedule) {
  // Two items of work for a cluster, more tiles than a ring has stages.
  static AttentionScene scene([] {
    AttentionCase c = make_case(1, 1, 300, 900);
    c.numerics.max_extra_steps = 0;
    return c;
  }());
  expect_seen(GetParam(), kSchedules, [](const auto& schedule) { return scene.run(schedule); });
}

// A tensor that ends before the rows that the kernel is asked for.
TEST_F(ModelPlanted, RowsBeyondTheOutput) {
  AttentionCase c = make_case(1, 1, 100, 200);
  const HostPrepared host(c, make_tensors(c));
  const DevicePrepared device(host);
  AttentionCase shorter = c;
  shorter.problem.queries = 99;
  const DeviceOutput out(shorter.problem, c.type);
  std::string message;
  try {
    cuda::sm90::launch(device.view(), out.view(), nullptr, nullptr);
  } catch (const model::Fault& fault) {
    message = fault.what();
  }
  EXPECT_THAT(message, ContainsRegex("consumer 1.: stores to .* bytes of global memory, .* bytes "
                                     "beyond the end of a buffer of 25344"));
}

INSTANTIATE_TEST_SUITE_P(Hopper, ModelPlantedLines, testing::ValuesIn(kPlanted), kLineName);

}  // namespace
}  // namespace openvc::test
