// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdint>

#include "planted.hpp"
#include "tensor_pipeline.hpp"

// The faults of the protocol of tcgen05: lines of a small kernel that are missing or wrong, and
// operands that are.
namespace openvc::model {
namespace {

using Kind = Mutation::Kind;
using test::kWait;
using test::Planted;

constexpr std::int64_t kOne = 1;

constexpr const char* kScoreProduct = "tcgen05.mma.ss";
constexpr const char* kSumProduct = "tcgen05.mma.ts";
constexpr const char* kCommit = "tcgen05.commit";
constexpr const char* kBefore = "tcgen05.fence::before_thread_sync";
constexpr const char* kAfter = "tcgen05.fence::after_thread_sync";
constexpr int kIssuer = TensorPipeline::kIssuer;

const Planted kPlanted[] = {
    {"NoWaitForLoads",
     {Kind::skip, "tcgen05.wait::ld"},
     "issuer.*tcgen05.mma.ss: writes to column 0 of tensor memory, lanes 0 to 31, which "
     "tcgen05.ld.*pack::16b of warp 0 .softmax. reads: no tcgen05.wait::ld of warp 0 .softmax. has "
     "followed"},
    {"NoWaitForStores",
     {Kind::skip, "tcgen05.wait::st"},
     "issuer.*tcgen05.mma.ts: reads column 128 of tensor memory, .* which tcgen05.st.32x32b.x32 of "
     "warp 0 .softmax. writes: no tcgen05.wait::st of warp 0"},
    {"NoFenceBefore",
     {Kind::skip, kBefore},
     "tcgen05.mma.ts: .*column 128.*no tcgen05.fence::before_thread_sync of every lane of warp 0"},
    {"NoFenceBeforeInOneLane",
     {Kind::skip, kBefore, "", 0, 2, 9},
     "tcgen05.mma.ts: .*lanes 64 to 95.*no tcgen05.fence::before_thread_sync of every lane of warp "
     "2"},
    {"NoFenceAfterWeights",
     {Kind::skip, kAfter, "", 0, kIssuer},
     "tcgen05.mma.ts: reads column 128.*no tcgen05.fence::after_thread_sync of the thread since"},
    {"NoFenceAfterScores",
     {Kind::skip, kAfter, "", 0, 1, -1, 1, 1},
     "softmax.*pack::16b: reads column 0 .*lanes 32 to 63, which tcgen05.mma.ss of warp 4 .issuer. "
     "writes: no tcgen05.fence::after_thread_sync of every lane since"},
    {"NoFenceAfterSums",
     {Kind::skip, kAfter, "", 0, 1, -1, 6, 6},
     "softmax.*x32: reads column 160 .* tcgen05.mma.ts of warp 4 .issuer. writes: no "
     "tcgen05.fence::after_thread_sync of every lane since"},
    {"ScoresNotWaitedFor",
     {Kind::skip, kWait, "scores_full"},
     "softmax.*pack::16b: reads column .* which tcgen05.mma.ss of warp 4 .issuer. writes: the warp "
     "has waited for no tcgen05.commit that covers it|tcgen05.mma.ss: writes to column .* which "
     "tcgen05.ld.*pack::16b of warp . .softmax. reads: no"},
    {"WeightsNotWaitedFor",
     {Kind::skip, kWait, "weights_full"},
     "issuer.*tcgen05.mma.ts: reads column 128 .*(nobody has written|tcgen05.st.32x32b.x32 of warp "
     "0 .softmax. writes: nothing orders that before this)"},
    {"WeightsStoredOverRunningProduct",
     {Kind::skip, kWait, "sums_full", 0, -1, -1, 1, 1},
     "softmax.*tcgen05.st.32x32b.x32: writes to column 128 .* which tcgen05.mma.ts of warp 4 "
     ".issuer. reads: the warp has waited for no tcgen05.commit that covers it"},
    {"SumsNotWaitedFor",
     {Kind::skip, kWait, "sums_full", 0, -1, -1, 3, 3},
     "softmax.*x32: reads column 160 .* which tcgen05.mma.ts of warp 4 .issuer. writes: the warp "
     "has waited for no tcgen05.commit that covers it|tcgen05.mma.ts: writes to column 160 .* "
     "which "
     "tcgen05.ld.32x32b.x32 of warp . .softmax. reads: no"},
    {"KeysNotWaitedFor",
     {Kind::skip, kWait, "key_full"},
     "issuer.*tcgen05.mma.ss: row 0 of B at 0x4400: (nobody has written it|a copy of warp 5 "
     ".loader. .*wait)"},
    {"KeysCopiedOverRunningProduct",
     {Kind::skip, kWait, "key_empty"},
     "loader.*(writes to 0x4400 .*nobody has waited for: phase 0 of key_full|one arrival too many "
     "at key_full)"},
    {"NoCommitOfScores",
     {Kind::skip, kCommit, "scores_full"},
     "deadlock.*warp 0 .softmax. waits with 32 lanes for parity 0 of scores_full.0.*lacks 1 of 1"},
    {"NoCommitOfKeys",
     {Kind::skip, "tcgen05.commit.multicast", "key_empty"},
     "deadlock.*loader. waits with 1 lane for parity 0 of key_empty.*lacks 1 of 1 arrivals"},
    {"NoCommitOfSums",
     {Kind::skip, kCommit, "sums_full"},
     "deadlock.*softmax. waits with 32 lanes for parity 0 of sums_full.*lacks 1 of 1 arrivals"},
    {"CommitToAnotherBarrier",
     {Kind::change, kCommit, "sums_full", -8},
     "deadlock.*of sums_full.*phase 0 lacks 1 of 1 arrivals|tcgen05.commit of warp 4 .issuer.: one "
     "arrival too many at weights_full|one arrival too many at weights_full"},
    {"WrongParityOfWeights",
     {Kind::change, kWait, "weights_full", 1},
     "issuer.*tcgen05.mma.ts: reads column 128 .*nobody has written|deadlock.*parity 0 of "
     "sums_full.*warp 4 .issuer. waits .* of weights_full"},
    {"NotGivenBack",
     {Kind::skip, "tcgen05.dealloc"},
     "the block ends with columns 0 to 511 of tensor memory allocated"},
    {"WrongSwizzleOfKeys",
     {Kind::change, kScoreProduct, "", kOne << 62},
     "row 0 of B at 0x4400: the descriptor says a swizzle of 64 bytes, the tile was copied with "
     "one of 128"},
    {"WrongStrideOfKeys",
     {Kind::change, kScoreProduct, "", kOne << 35},
     "row 8 of B .*expected row 8, chunk 0 of the tile, found row 9.*stride byte offset of the "
     "descriptor is 1152"},
    {"WrongVersionOfKeys",
     {Kind::change, kScoreProduct, "", -(kOne << 46)},
     "descriptor of B .*: the constant in the bits 46 to 48 is 0; expected 1"},
    {"NoSwizzleOfValues",
     {Kind::change, kSumProduct, "", -(kOne << 62)},
     "tcgen05.mma.ts: descriptor of B .*: no swizzle"},
};

class ModelBlockProductPlanted : public testing::TestWithParam<Planted> {};

TEST_P(ModelBlockProductPlanted, IsSeenByEverySchedule) {
  constexpr Schedule kSome[] = {kAllSchedules[0], kAllSchedules[1], kAllSchedules[3]};
  test::expect_seen(GetParam(), kSome,
                    [](const Schedule& schedule) { return TensorPipeline().run(schedule); });
}

INSTANTIATE_TEST_SUITE_P(Kernel, ModelBlockProductPlanted, testing::ValuesIn(kPlanted),
                         test::kLineName);

}  // namespace
}  // namespace openvc::model
