// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "planted.hpp"

// Lines of the Blackwell kernel that could be missing or wrong, and what the model says then.
namespace openvc::test::sm100 {

using Kind = model::Mutation::Kind;

inline constexpr std::int64_t kOne = 1;
inline constexpr const char* kScores = "tcgen05.mma.ss";
inline constexpr const char* kSums = "tcgen05.mma.ts";
inline constexpr const char* kCommit = "tcgen05.commit";
inline constexpr const char* kBefore = "tcgen05.fence::before_thread_sync";
inline constexpr const char* kAfter = "tcgen05.fence::after_thread_sync";
inline constexpr int kKeyLoader = 0;  // warps
inline constexpr int kValueLoader = 1;
inline constexpr int kQueryLoader = 2;
inline constexpr int kMultiplier = 3;
inline constexpr int kConsumer = 4;          // the first
inline constexpr std::int64_t kBarrier = 8;  // bytes
// Tiles of each kind that the first block loads: two items of work of three.
inline constexpr int kLoads = 6;

inline const Planted kPlanted[] = {
    // ---- waits ----
    {"NoWaitForQueries",
     {Kind::skip, kWait, "query_full", 0, kMultiplier},
     "multiplier.: tcgen05.mma.ss: row 0 of A at .*query_loader. (that writes it is in flight|has "
     "written it, .*phase 0 of query_full)"},
    {"NoWaitForKeys",
     {Kind::skip, kWait, "key_full"},
     "multiplier.: tcgen05.mma.ss: row 0 of B at .*(key_loader. (that writes it is in flight|has "
     "written it, .*phase 0 of key_full.0)|nobody has written it)"},
    {"NoWaitForValues",
     {Kind::skip, kWait, "value_full"},
     "multiplier.: tcgen05.mma.ts: row 0 of B at .*(value_loader. (that writes it is in flight|has "
     "written it, .*phase 0 of value_full.0)|nobody has written it)"},
    {"NoWaitForFreeQueries",
     {Kind::skip, kWait, "query_empty"},
     "query_loader.: (.*nobody has waited for: phase 0 of query_full|.*one arrival too many at "
     "query_full)"},
    {"NoWaitForFreeKeys",
     {Kind::skip, kWait, "key_empty"},
     "key_loader.: (.*nobody has waited for: phase 0 of key_full|.*one arrival too many at "
     "key_full|.*nothing orders a product of .*multiplier. that reads there)"},
    {"NoWaitForFreeValues",
     {Kind::skip, kWait, "value_empty"},
     "value_loader.: (.*nobody has waited for: phase 0 of value_full|.*one arrival too many at "
     "value_full|.*nothing orders a product of .*multiplier. that reads there)"},
    {"NoWaitForScores",
     {Kind::skip, kWait, "score_full"},
     "consumer .*pack::16b: reads column .* tcgen05.mma.ss of .*multiplier. writes: the warp has "
     "waited for no tcgen05.commit|multiplier.: tcgen05.mma.ss: writes to column 0 .*consumer 0. "
     "reads: nothing orders|deadlock.*multiplier. waits .* of (probability_full|partial_empty)"},
    {"NoWaitForProbabilities",
     {Kind::skip, kWait, "probability_full"},
     "multiplier.: tcgen05.mma.ts: reads column 256 .*(tcgen05.st.* of warp . .consumer 0. writes: "
     "no|nobody has written)"},
    {"NoWaitForOtherProbabilities",
     {Kind::skip, kWait, "probability_full[1]"},
     "multiplier.: tcgen05.mma.ts: reads column 272 .*(tcgen05.st.* of warp . .consumer 0. writes: "
     "no|nobody has written)"},
    {"NoWaitForSums",
     {Kind::skip, kWait, "partial_full"},
     "consumer .*x32: reads column 320 .* tcgen05.mma.ts of .*multiplier. writes: the warp has "
     "waited for no tcgen05.commit|multiplier.: tcgen05.mma.ts: writes to column 320 .* of "
     ".*consumer .. reads: no"},
    {"NoWaitForSumsToBeRead",
     {Kind::skip, kWait, "partial_empty"},
     "consumer 0.: .*x32: reads column 320 .* tcgen05.mma.ts of .*multiplier. writes: the warp has "
     "waited for no|multiplier.: tcgen05.mma.ts: writes to column 320 .* consumer .. reads"},
    {"NoWaitForTheLastValues",
     {Kind::skip, kWait, "value_empty", 0, kValueLoader, -1, kLoads + 1},
     "the block ends(, and nothing orders the arrival of a| while a) tcgen05.commit of warp 3 "
     ".multiplier."},
    {"WrongParityOfQueries",
     {Kind::change, kWait, "query_full", 1},
     "multiplier.: tcgen05.mma.ss: row 0 of A at .*(query_loader|nobody has written)"},
    {"WrongParityOfKeys",
     {Kind::change, kWait, "key_full", 1},
     "deadlock.*multiplier. waits .* parity 1 of key_full|multiplier.: tcgen05.mma.ss: row 0 of B "
     ".*(key_loader|nobody has written)"},
    {"WrongParityOfFreeKeys",
     {Kind::change, kWait, "key_empty", 1},
     "deadlock.*key_loader. waits with 1 lane for parity 0 of key_empty.0.*phase 0 lacks 1 of 1"},
    {"WrongParityOfScores",
     {Kind::change, kWait, "score_full", 1},
     "deadlock.*multiplier. waits with 1 lane for parity . of (probability_full|partial_empty)|"
     "consumer .*tcgen05.mma.ss of .*multiplier. writes: the warp has waited for no tcgen05.commit|"
     "multiplier.: tcgen05.mma.ss: writes to column 0 .*consumer 0. reads: nothing orders"},
    {"WrongParityOfProbabilities",
     {Kind::change, kWait, "probability_full", 1},
     "multiplier.: tcgen05.mma.ts: reads column 256 .*(tcgen05.st.* of warp . .consumer 0. writes: "
     "no|nobody has written)"},
    {"WrongParityOfOtherProbabilities",
     {Kind::change, kWait, "probability_full[1]", 1},
     "multiplier.: tcgen05.mma.ts: reads column 272 .*(tcgen05.st.* of warp . .consumer 0. writes: "
     "no|nobody has written)"},
    {"WrongParityOfReadSums",
     {Kind::change, kWait, "partial_empty", 1},
     "deadlock.*multiplier. waits with 1 lane for parity 0 of partial_empty.2.*phase 0 lacks 4 of "
     "4"},
    // ---- arrivals ----
    {"QueriesNotGivenBack",
     {Kind::skip, kArrive, "query_empty"},
     "deadlock.*query_loader. waits .* of query_empty.*phase 0 lacks 8 of 9"},
    {"QueriesGivenBackTwice",
     {Kind::repeat, kArrive, "query_empty"},
     "query_loader.: .*nothing orders a product of .*multiplier|multiplier.: .*row 0 of A "
     ".*query_loader|phase 1 of query_full.* completes before all .*consumer|deadlock.*query_"},
    {"ProbabilitiesOfOneWarpNotAnnounced",
     {Kind::skip, kArrive, "probability_full", 0, 9},
     "deadlock.*multiplier. waits .* of probability_full.2.*phase 0 lacks 1 of 4"},
    {"OtherProbabilitiesOfOneWarpNotAnnounced",
     {Kind::skip, kArrive, "probability_full[1]", 0, 5},
     "deadlock.*multiplier. waits .* of probability_full.1.*phase 0 lacks 1 of 4"},
    {"ProbabilitiesAnnouncedTwice",
     {Kind::repeat, kArrive, "probability_full", 0, 9},
     "multiplier.: tcgen05.mma.ts: reads column (288|304) .*(consumer 1. writes: no|nobody has "
     "written)|one arrival too many at probability_full.2"},
    {"SumsNotGivenBackByOneWarp",
     {Kind::skip, kArrive, "partial_empty", 0, 6},
     "deadlock.*multiplier. waits .* of partial_empty.0.*phase 0 lacks 1 of 4"},
    {"FewerWarpsOfProbabilities",
     {Kind::change, kInit, "probability_full", -1},
     "multiplier.: tcgen05.mma.ts: reads column 256 .*(consumer 0. writes: no|nobody has written)"},
    {"MoreWarpsOfProbabilities",
     {Kind::change, kInit, "probability_full[3]", 1},
     "deadlock.*multiplier. waits .* of probability_full.3.*phase 0 lacks 1 of 5"},
    {"FewerReadersOfSums",
     {Kind::change, kInit, "partial_empty", -1},
     "multiplier.: tcgen05.mma.ts: writes to column 320 .*x(8|16|32) of .*consumer 0. reads: no"},
    {"MoreReadersOfQueries",
     {Kind::change, kInit, "query_empty", 1},
     "deadlock.*query_loader. waits .* of query_empty.*phase 0 lacks 1 of 10"},
    // ---- commits ----
    {"NoCommitOfScores",
     {Kind::skip, kCommit, "score_full"},
     "deadlock.*consumer 0. waits .* of score_full.0.*phase 0 lacks 1 of 1"},
    {"NoCommitOfSums",
     {Kind::skip, kCommit, "partial_full"},
     "deadlock.*consumer 0. waits .* of partial_full.0.*phase 0 lacks 1 of 1"},
    {"NoCommitOfKeys",
     {Kind::skip, kCommit, "key_empty"},
     "deadlock.*key_loader. waits .* of key_empty.0.*phase 0 lacks 1 of 1"},
    {"NoCommitOfValues",
     {Kind::skip, kCommit, "value_empty"},
     "deadlock.*value_loader. waits .* of value_empty.0.*phase 0 lacks 1 of 1"},
    {"NoCommitOfQueries",
     {Kind::skip, kCommit, "query_empty"},
     "deadlock.*query_loader. waits .* of query_empty.*phase 0 lacks 1 of 9"},
    {"ScoresCommittedToTheOtherTile",
     {Kind::change, kCommit, "score_full[0]", kBarrier},
     "phase 1 of score_full.1. .*completes before all .*consumer 1|consumer 1.: .*column 128 .* "
     "has waited for no tcgen05.commit|deadlock.*consumer 0. waits .* of score_full.0"},
    {"SumsCommittedToTheOtherTile",
     {Kind::change, kCommit, "partial_full[2]", -2 * kBarrier},
     "deadlock.*consumer 1. waits .* of partial_full.2.*phase 0 lacks 1 of 1|phase 1 of "
     "partial_full.0. .*completes before all .*consumer 0"},
    {"KeysCommittedToTheNextStage",
     {Kind::change, kCommit, "key_empty[0]", kBarrier},
     "deadlock.*key_loader. waits .* of key_empty.0.*phase 0 lacks 1 of 1|key_loader.: .*(nothing "
     "orders a product|nobody has waited)"},
    // ---- bytes and copies ----
    {"MoreBytesOfQueries",
     {Kind::change, kExpect, "query_full", 16},
     "deadlock.*query_full.*phase 0 lacks 0 of 1 arrivals and 16 bytes"},
    {"FewerBytesOfValues",
     {Kind::change, kExpect, "value_full", -128},
     "value_loader.: value_full.*phase 0: 128 bytes more than were expected"},
    {"NothingExpectedOfKeys",
     {Kind::skip, kExpect, "key_full"},
     "deadlock.*key_full.0.*phase 0 lacks 1 of 1 arrivals and -16384 bytes"},
    {"NoCodeOfValues",
     {Kind::skip, "cp.async.bulk"},
     "deadlock.*query_full.*phase 0 lacks 0 of 1 arrivals and 1024 bytes"},
    {"KeysNotCopied",
     {Kind::skip, kTile, "", 0, kKeyLoader},
     "deadlock.*key_full.0.*phase 0 lacks 0 of 1 arrivals and 16384 bytes"},
    {"ValuesInAnotherPlace",
     {Kind::change, kTile, "", 1024, kValueLoader},
     "_loader.: .*writes to 0x32c00 .*(as does a copy in flight|nobody has waited "
     "for)|multiplier.: tcgen05.mma.ts: row 0 of B .*nobody has written"},
    // ---- products ----
    {"WrongSwizzleOfValues",
     {Kind::change, kSums, "", kOne << 62},
     "tcgen05.mma.ts: row 0 of B .*the descriptor says a swizzle of 64 bytes, the tile was copied "
     "with one of 128"},
    {"NoSwizzleOfValues",
     {Kind::change, kSums, "", -(kOne << 62)},
     "multiplier.: tcgen05.mma.ts: descriptor of B .*: no swizzle"},
    {"WrongStrideOfKeys",
     {Kind::change, kScores, "", kOne << 35},
     "multiplier.: tcgen05.mma.ss: row 8 of B .*expected row 8, .* found row 9.*stride byte offset "
     "of the descriptor is 1152"},
    {"WrongVersionOfKeys",
     {Kind::change, kScores, "", -(kOne << 46)},
     "multiplier.: tcgen05.mma.ss: descriptor of B .*: the constant in the bits 46 to 48 is 0; "
     "expected 1"},
    {"WrongStartOfQueries",
     {Kind::change, "tcgen05.mma.ss A", "", 8},
     "multiplier.: tcgen05.mma.ss: descriptor of A .*the tile starts at 0x4e0; expected a multiple "
     "of 1024"},
    {"WrongStartOfValues",
     {Kind::change, kSums, "", 64},
     "multiplier.: tcgen05.mma.ts: row 56 of B .*(value_loader. .*value_full.1|nobody has "
     "written)"},
    {"ScoresOfBinary32",
     {Kind::change, "tcgen05.mma.ss descriptor", "", 1 << 4},
     "consumer .*pack::16b: takes column .* for a sum of binary16; tcgen05.mma.ss of warp 3 "
     ".multiplier. has left one of binary32"},
    {"HalfTheRows",
     {Kind::change, "tcgen05.mma.ss descriptor", "", -(4 << 24)},
     "multiplier.: tcgen05.mma.ss: instruction descriptor .*: M .* is 64; the model knows 128"},
    {"MoreKeys",
     {Kind::change, "tcgen05.mma.ss descriptor", "", 2 << 17},
     "multiplier.: tcgen05.mma.ss: row 128 of B .*(key_loader. .*|nobody has written)"},
    {"OddNumberOfRowsOfOnes",
     {Kind::change, "tcgen05.mma.ts descriptor", "", -(1 << 17)},
     "multiplier.: tcgen05.mma.ts: instruction descriptor .*: N is 72; expected a multiple of 16"},
    {"ScoresInAnotherBuffer",
     {Kind::change, "tcgen05.mma.ss D", "", 128},
     "consumer .*tcgen05.st.*: writes to column 256 .* tcgen05.mma.ss of .*multiplier. writes: the "
     "warp has waited for no"},
    {"SumsInAnotherPlace",
     {Kind::change, "tcgen05.mma.ts D", "", -16},
     "column 304 of tensor memory, .*(consumer 1|multiplier). writes: (nothing orders|the warp has "
     "waited for no|no)"},
    {"OtherProbabilities",
     {Kind::change, "tcgen05.mma.ts A", "", 32},
     "multiplier.: tcgen05.mma.ts: reads column 288 .*(consumer 1. writes: no|nobody has written)"},
    {"ScoresAddedToOlder",
     {Kind::change, "tcgen05.mma.ss accumulate", "", 1},
     "multiplier.: tcgen05.mma.ss: writes to column 0 .* which nobody has written"},
    // ---- tensor memory ----
    {"NoWaitForLoads",
     {Kind::skip, "tcgen05.wait::ld"},
     "multiplier.: tcgen05.mma.ss: writes to column 0 .* of warp . .consumer 0. reads: no "
     "tcgen05.wait::ld"},
    {"NoWaitForStores",
     {Kind::skip, "tcgen05.wait::st"},
     "multiplier.: tcgen05.mma.ts: reads column 256 .* of warp . .consumer 0. writes: no "
     "tcgen05.wait::st"},
    {"NoFenceBeforeProbabilities",
     {Kind::skip, kBefore, "", 0, kConsumer, -1, 1, 1},
     "multiplier.: tcgen05.mma.ts: reads column 256 .*tcgen05.st.* of warp 4 .consumer 0. writes: "
     "(no tcgen05.fence::before_thread_sync|nothing orders that)"},
    {"NoFenceBeforeOtherProbabilities",
     {Kind::skip, kBefore, "", 0, kConsumer, -1, 2, 2},
     "multiplier.: tcgen05.mma.ts: reads column 272 .*tcgen05.st.* of warp 4 .consumer 0. writes: "
     "(no tcgen05.fence::before_thread_sync|nothing orders that)"},
    {"NoFenceBeforeSumsAreGivenBack",
     {Kind::skip, kBefore, "", 0, kConsumer, -1, 3, 3},
     "multiplier.: tcgen05.mma.ts: writes to column 320 .*x(16|32) of warp 4 .consumer 0. reads: "
     "(no tcgen05.fence::before_thread_sync|nothing orders that)"},
    {"NoFenceBeforeInOneLane",
     {Kind::skip, kBefore, "", 0, 9, 13},
     "multiplier.: tcgen05.mma.ts: reads column 288 .*no tcgen05.fence::before_thread_sync of "
     "every lane of warp 9 .consumer 1."},
    {"NoSyncwarpBehindFences",
     {Kind::skip, "bar.warp.sync", "", 0, 5},
     "multiplier.: tcgen05.mma.ts: reads column 256 .*lanes 32 to 63, .* of warp 5 .consumer 0. "
     "writes: (nothing orders that|no tcgen05.fence::before)"},
    {"NoFenceAfterScores",
     {Kind::skip, kAfter, "", 0, kConsumer, -1, 2, 2},
     "consumer 0.: .*pack::16b: reads column 0 .* tcgen05.mma.ss of .*multiplier. writes: no "
     "tcgen05.fence::after_thread_sync of every lane"},
    {"NoFenceAfterSums",
     {Kind::skip, kAfter, "", 0, kConsumer, -1, 3, 3},
     "consumer 0.: .*x32: reads column 320 .* tcgen05.mma.ts of .*multiplier. writes: no "
     "tcgen05.fence::after_thread_sync of every lane"},
    {"NoFenceAfterProbabilities",
     {Kind::skip, kAfter, "", 0, kMultiplier, -1, 3, 3},
     "multiplier.: tcgen05.mma.ts: reads column 256 .*consumer 0. writes: no "
     "tcgen05.fence::after_thread_sync of the thread"},
    {"NoFenceAfterSumsAreRead",
     {Kind::skip, kAfter, "", 0, kMultiplier, -1, 9, 9},
     "multiplier.: tcgen05.mma.ts: writes to column 400 .*consumer 0. reads: no "
     "tcgen05.fence::after_thread_sync of the thread"},
    {"ScoresReadFromAnotherBuffer",
     {Kind::change, "tcgen05.ld.32x32b.x64.pack::16b", "", 128},
     "consumer 0.: .*pack::16b: reads column 128 .* tcgen05.mma.ss of .*multiplier. writes: the "
     "warp has waited for no|consumer 1.: .*pack::16b: (reads column 256|takes column "
     "256)|multiplier.: tcgen05.mma.ss: writes to column 128"},
    {"ProbabilitiesInAnotherBuffer",
     {Kind::change, "tcgen05.st.32x32b.x16", "", 32},
     "multiplier.: tcgen05.mma.ts: reads column 256 .* which nobody has written|multiplier.: "
     "tcgen05.mma.ts: .*column 320 .* tcgen05.st"},
    {"SumsReadFromAnotherPlace",
     {Kind::change, "tcgen05.ld.32x32b.x32", "", -16},
     "consumer 0.: .*x32: reads column 304 .* tcgen05.st.32x32b.x16 of .*consumer 1. writes: "
     "no|consumer 1.: .*tcgen05.st.* writes to column 304 .*consumer 0. reads: no"},
    {"LanesOfAnotherWarp",
     {Kind::change, "tcgen05.st.32x32b.x16", "", 32 << 16},
     "consumer ..: tcgen05.st.32x32b.x16: the address 0x.* starts at lane .*; warp .* of the block "
     "reaches the lanes"},
    {"FewerColumns",
     {Kind::change, "tcgen05.alloc", "", -256},
     "consumer ..: tcgen05.st.32x32b.x16: columns .* of tensor memory are not allocated"},
    {"NotGivenBack",
     {Kind::skip, "tcgen05.dealloc"},
     "the block ends with columns 0 to 511 of tensor memory allocated; expected tcgen05.dealloc"},
    // ---- the block ----
    {"NoFenceBehindInitialisation",
     {Kind::skip, "fence.mbarrier_init"},
     "_loader.: .*no fence.mbarrier_init after the initialisation of"},
    {"NoBarrierBehindAllocation",
     {Kind::skip, "bar.sync", "", 0, -1, -1, 1, 1},
     "nothing orders the initialisation of .* before this|has not been initialised|multiplier.: "
     "stores to .* and nothing orders an access"},
    {"NoBarrierAtTheEnd",
     {Kind::skip, "bar.sync", "", 0, -1, -1, 2, 2},
     "multiplier.: tcgen05.dealloc: column .* which tcgen05.mma.ts of .*multiplier. has used: the "
     "warp has waited for no"},
    {"RegistersNotGivenBack",
     {Kind::skip, "setmaxnreg.dec"},
     "deadlock.*consumer .*waits with 32 lanes for registers"},
};

}  // namespace openvc::test::sm100
