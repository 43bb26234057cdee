// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include "attention_scene.hpp"
#include "planted.hpp"
#include "sm100_faults.hpp"

// Faults planted into the Blackwell kernel, as if a line of it were missing or wrong: every
// schedule sees each, with a message that names place and cause (sm100_faults.hpp).
namespace openvc::test {
namespace {

using namespace sm100;

// What the kernel has a right to survive.
const Survivor kSurvivors[] = {
    {"NoWaitForTheLastKeys",
     {Kind::skip, kWait, "key_empty", 0, kKeyLoader, -1, kLoads + 1},
     "The consumers' last wait is for a commit that was issued later, and commits of a thread "
     "arrive "
     "in order. PTX does not say that they do."},
    {"NoWaitForTheLastQueries",
     {Kind::skip, kWait, "query_empty", 0, kQueryLoader, -1, 3},
     "As for the last keys. Where the last item has no keys, threads of the block arrive."},
    {"ConsumersDoNotWaitForQueries",
     {Kind::skip, kWait, "query_full", 0, kConsumer},
     "The multiplier has waited before it multiplies, and its commit says so to those who wait for "
     "scores. Needed where there are no keys: kPlantedWithoutKeys."},
    {"NoFenceBehindAllocation",
     {Kind::skip, kBefore, "", 0, kMultiplier},
     "The address comes through shared memory and __syncthreads()."},
    {"NoFenceBeforeUseOfColumns",
     {Kind::skip, kAfter, "", 0, -1, -1, 1, 1},
     "Every use follows a wait of its own, with a fence behind it."},
    {"NoFenceBetweenWaits",
     {Kind::skip, kAfter, "", 0, kMultiplier, -1, 2, 2},
     "Nothing uses tensor memory between the wait for free sums and that for probabilities, which "
     "has a fence too."},
    {"NoFenceBehindTheLastLoads",
     {Kind::skip, kBefore, "", 0, kConsumer, -1, 25, 25},
     "promote() has executed one behind its loads."},
    {"NoFenceBeforeColumnsAreFreed",
     {Kind::skip, kAfter, "", 0, kMultiplier, 5, 2},
     "The model asks of tcgen05.dealloc that others are done, not for fences: PTX does not count "
     "it "
     "among what they order."},
    {"NoPermitGivenBack",
     {Kind::skip, "tcgen05.relinquish_alloc_permit"},
     "No other block shares the multiprocessor, nor wants columns."},
};

// Seen in the result alone, which becomes NaN: registers of loads are, until the wait, upper halves
// of binary16 sums, and columns that nobody has written.
const Planted kOtherResults[] = {
    {"NoWaitForFirstLoadOfSums",
     {Kind::skip, "tcgen05.wait::ld", "", 0, -1, -1, 2, 2},
     AttentionScene::kOtherResult},
    {"SumsOfBinary16",
     {Kind::change, "tcgen05.mma.ts descriptor", "", -(1 << 4)},
     AttentionScene::kOtherResult},
    {"WithoutRowsOfOnes",
     {Kind::change, "tcgen05.mma.ts descriptor", "", -(2 << 17)},
     AttentionScene::kOtherResult},
};

// Items of work without keys.
const Planted kPlantedWithoutKeys[] = {
    {"ConsumersDoNotWaitForQueries",
     {Kind::skip, kWait, "query_full", 0, kConsumer},
     "consumer 0.: loads from .*query_loader. has written, .*phase 0 of query_full|query_loader.: "
     "cp.async.bulk: writes to .* nothing orders an access of warp 4 .consumer 0."},
    {"MultiplierDoesNotWaitForQueries",
     {Kind::skip, kWait, "query_full", 0, kMultiplier},
     "multiplier.: tcgen05.mma.ss: row 0 of A .*query_loader|deadlock.*query_loader. waits .* of "
     "query_empty"},
    {"MultiplierDoesNotGiveQueriesBack",
     {Kind::skip, kArrive, "query_empty", 0, kMultiplier},
     "deadlock.*query_loader. waits .* of query_empty.*phase 0 lacks 1 of 9"},
};

// Residual columns: the first product of a block.
const Planted kPlantedColumns[] = {
    {"WrongSwizzleOfKeyColumns",
     {Kind::change, kScores, "", -(kOne << 62), -1, -1, 1, 1},
     "multiplier.: tcgen05.mma.ss: row 0 of B .*a swizzle of 64 bytes, the tile was copied with "
     "one of 32"},
    {"WrongSwizzleOfQueryColumns",
     {Kind::change, "tcgen05.mma.ss A", "", -(kOne << 62), -1, -1, 1, 1},
     "multiplier.: tcgen05.mma.ss: row 0 of A .*a swizzle of 64 bytes, the tile was copied with "
     "one of 32"},
    {"KeyColumnsNotCopied",
     {Kind::skip, kTile, "", 0, kKeyLoader, -1, 2, 2},
     "deadlock.*key_full.0.*phase 0 lacks 0 of 1 arrivals and 4096 bytes"},
    {"QueryColumnsNotExpected",
     {Kind::change, kExpect, "query_full", -8192},
     "multiplier.: tcgen05.mma.ss: row 0 of A .*query_loader. (that writes it is in flight|has "
     "written it, .*phase 1 of query_full)|query_loader.*bytes more than were expected"},
    {"ColumnsOfAnotherStep",
     {Kind::change, kScores, "", 256, -1, -1, 2, 2},
     "multiplier.: tcgen05.mma.ss: row 0 of B .*(key_loader. .*key_full.1|nobody has written)"},
};

AttentionScene make_scene(AttentionCase c, int extra_steps) {
  c.kernel = &kBlackwell;
  c.numerics = all_steps(extra_steps);
  return AttentionScene(c);
}

auto runner(AttentionScene& scene) {
  return [&](const model::Schedule& schedule) { return scene.run(schedule); };
}

/// Two items of work for the first block, more tiles than a ring has stages.
AttentionScene& whole_scene() {
  static AttentionScene scene = make_scene(make_case(1, 4, 40, 300), 0);
  return scene;
}

template <class Line>
class ModelBlackwellLines : public Sm90Test, public testing::WithParamInterface<Line> {};

class ModelBlackwellPlanted : public ModelBlackwellLines<Planted> {};

TEST_P(ModelBlackwellPlanted, IsSeenByEverySchedule) {
  expect_seen(GetParam(), kSchedules, runner(whole_scene()));
}
INSTANTIATE_TEST_SUITE_P(Kernel, ModelBlackwellPlanted, testing::ValuesIn(kPlanted), kLineName);

class ModelBlackwellWithoutKeys : public ModelBlackwellLines<Planted> {};

TEST_P(ModelBlackwellWithoutKeys, IsSeenByEverySchedule) {
  static AttentionScene scene = make_scene(make_case(1, 2, 700, 70, Mask::causal), 0);
  expect_seen(GetParam(), kSchedules, runner(scene));
}
INSTANTIATE_TEST_SUITE_P(Kernel, ModelBlackwellWithoutKeys, testing::ValuesIn(kPlantedWithoutKeys),
                         kLineName);

class ModelBlackwellColumns : public ModelBlackwellLines<Planted> {};

TEST_P(ModelBlackwellColumns, IsSeenByEverySchedule) {
  static AttentionScene scene = make_scene(make_case(1, 1, 40, 200), 2);
  expect_seen(GetParam(), kSchedules, runner(scene));
}
INSTANTIATE_TEST_SUITE_P(Kernel, ModelBlackwellColumns, testing::ValuesIn(kPlantedColumns),
                         kLineName);

class ModelBlackwellSurvivors : public ModelBlackwellLines<Survivor> {};

TEST_P(ModelBlackwellSurvivors, NoScheduleSeesAnything) {
  expect_survived(GetParam(), kSchedules, runner(whole_scene()));
}
INSTANTIATE_TEST_SUITE_P(Kernel, ModelBlackwellSurvivors, testing::ValuesIn(kSurvivors), kLineName);

class ModelBlackwellOtherResults : public ModelBlackwellLines<Planted> {};

TEST_P(ModelBlackwellOtherResults, ByEverySchedule) {
  expect_seen(GetParam(), kSchedules, runner(whole_scene()));
}
INSTANTIATE_TEST_SUITE_P(Kernel, ModelBlackwellOtherResults, testing::ValuesIn(kOtherResults),
                         kLineName);

/// A number of docs/results/model/sm100.json; -1 if it is not there.
int recorded(const std::string& key) {
  std::ifstream file(OPENVC_REPOSITORY_DIRECTORY "/docs/results/model/sm100.json");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::smatch match;
  if (!std::regex_search(text, match, std::regex("\"" + key + "\": ([0-9]+)"))) return -1;
  return std::stoi(match[1]);
}

TEST(ModelBlackwellRecord, HasTheNumbersOfTheTree) {
  constexpr std::size_t kFaults = std::size(kPlanted) + std::size(kPlantedWithoutKeys) +
                                  std::size(kPlantedColumns) + std::size(kOtherResults);
  EXPECT_EQ(recorded("planted_faults"), static_cast<int>(kFaults));
  EXPECT_EQ(recorded("planted_faults_seen"), static_cast<int>(kFaults));
  int tests = 0;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const std::string name = std::string(suite.name()) + "." + suite.GetTestInfo(j)->name();
      tests += name.find("Blackwell") != std::string::npos;
    }
  }
  // Those who add tests need not count them at once.
  EXPECT_LE(recorded("tests_on_model"), tests);
  EXPECT_GT(recorded("tests_on_model"), tests / 2);
}

}  // namespace
}  // namespace openvc::test
