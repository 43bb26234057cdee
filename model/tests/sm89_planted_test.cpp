// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "attention_scene.hpp"
#include "planted.hpp"

// Faults planted into the kernel of sm89/, as if a line of it were missing or wrong: every schedule
// sees each, with a message that names place and cause.
namespace openvc::test {
namespace {

using Kind = model::Mutation::Kind;

constexpr const char* kArriveBehindCopies = "cp.async.mbarrier.arrive";

const Planted kPlanted[] = {
    {"NoWaitForKeys",
     {Kind::skip, kWait, "key_full"},
     "consumer .*loads from .*(which a copy in flight of .*consumer|has written, and the warp has "
     "not waited for phase 0 of key_full.0)|completes before all who wait"},
    {"NoWaitForValues",
     {Kind::skip, kWait, "value_full"},
     "consumer .*loads from .*(which a copy in flight of .*consumer|has written, and the warp has "
     "not waited for phase 0 of value_full.0)"},
    {"WrongParityOfKeys",
     {Kind::change, kWait, "key_full", 1},
     "consumer .*loads from .*(copy in flight|key_full.0)|deadlock.*key_full"},
    {"KeysNotGivenBack",
     {Kind::skip, kArrive, "key_empty"},
     "deadlock.*waits .* of key_empty.0.*phase 0 lacks 8 of 8"},
    {"ValuesNotGivenBackByOneWarp",
     {Kind::skip, kArrive, "value_empty", 0, 5},
     "deadlock.*waits .* of value_empty.0.*phase 0 lacks 1 of 8"},
    {"NoArrivalBehindCopiesOfKeys",
     {Kind::skip, kArriveBehindCopies, "key_full"},
     "deadlock.*waits .* of key_full.0.*phase 0 lacks 256 of 256"},
    {"OneThreadDoesNotArrive",
     {Kind::skip, kArriveBehindCopies, "value_full", 0, 3, 7},
     "deadlock.*waits .* of value_full.0.*phase 0 lacks 1 of 256"},
    {"MoreReaders",
     {Kind::change, kInit, "value_empty", 1},
     "deadlock.*waits .* of value_empty.0.*phase 0 lacks 1 of 9"},
    {"FewerCopies",
     {Kind::change, kInit, "key_full", -1},
     "loads from .*(copy in flight|has not waited for phase . of key_full)|one arrival too many at "
     "key_full|completes before all who wait"},
    {"MoreCopies",
     {Kind::change, kInit, "key_full", 1},
     "deadlock.*waits .* of key_full.0.*phase 0 lacks 1 of 257"},
    {"CopiesOfOneLaneLeftOut", {Kind::skip, "cp.async", "", 0, 2, 9}, "another result"},
};

// A ring of two has no need to ask whether a stage is free: a warp copies its share of a tile when
// it has used the one before, so whoever has waited for all shares knows that. Rings of more stages
// need it.
constexpr const char* kKnown = "the stage is known to be free";
const Survivor kSurvivors[] = {
    {"NoWaitForFreeKeys", {Kind::skip, kWait, "key_empty"}, kKnown},
    {"NoWaitForFreeValues", {Kind::skip, kWait, "value_empty"}, kKnown},
    {"FewerReaders", {Kind::change, kInit, "key_empty", -1}, kKnown},
};

AttentionScene& ada_scene() {
  // Two items of work, more tiles than a ring has stages.
  static AttentionScene scene([] {
    AttentionCase c = make_case(1, 1, 130, 600);
    c.kernel = &kAda;
    c.numerics.max_extra_steps = 0;
    return c;
  }());
  return scene;
}

class ModelPlantedAda : public Sm90Test, public testing::WithParamInterface<Planted> {};

TEST_P(ModelPlantedAda, IsSeenByEverySchedule) {
  AttentionScene& scene = ada_scene();  // whose first launch has no fault
  expect_seen(GetParam(), kSchedules, [&](const auto& schedule) { return scene.run(schedule); });
}

class ModelSurvivedAda : public Sm90Test, public testing::WithParamInterface<Survivor> {};

TEST_P(ModelSurvivedAda, BySchedules) {
  AttentionScene& scene = ada_scene();
  expect_survived(GetParam(), kSchedules,
                  [&](const auto& schedule) { return scene.run(schedule); });
}

INSTANTIATE_TEST_SUITE_P(Ada, ModelSurvivedAda, testing::ValuesIn(kSurvivors), kLineName);
INSTANTIATE_TEST_SUITE_P(Ada, ModelPlantedAda, testing::ValuesIn(kPlanted), kLineName);

}  // namespace
}  // namespace openvc::test
