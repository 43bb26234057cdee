// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "machine/machine.hpp"
#include "machine/mutation.hpp"

// Tables of faults that are planted into a kernel, as if a line of it were missing or wrong. One
// table a kernel: *_planted_test.cpp, block_product_fault_test.cpp.
namespace openvc::test {

/// A line of such a table.
struct Planted {
  const char* name;
  model::Mutation mutation;
  const char* message;  // regular expression; what is seen first may differ between schedules
};

/// A change that a kernel has a right to survive.
struct Survivor {
  const char* name;
  model::Mutation mutation;
  const char* reason;
};

/// For messages of GoogleTest.
inline void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }
inline void PrintTo(const Survivor& survivor, std::ostream* out) { *out << survivor.name; }

/// Name of a test, by the line of its table.
inline constexpr auto kLineName = [](const auto& test) { return std::string(test.param.name); };

// Instructions of all kernels.
inline constexpr const char* kWait = "mbarrier.try_wait";
inline constexpr const char* kArrive = "mbarrier.arrive";
inline constexpr const char* kExpect = "mbarrier.arrive.expect_tx";
inline constexpr const char* kInit = "mbarrier.init";
inline constexpr const char* kTile = "cp.async.bulk.tensor.3d";

/// Calls visit(message) with what `run`, which takes a schedule and returns the message of the
/// fault, finds by each of them while the mutation holds.
template <class Schedules, class Run, class Visit>
void run_mutated(const model::Mutation& mutation, const Schedules& schedules, const Run& run,
                 const Visit& visit) {
  for (const model::Schedule& schedule : schedules) {
    SCOPED_TRACE(schedule.describe());
    model::set_mutation(mutation);
    const std::string message = run(schedule);
    model::set_mutation({});
    visit(message);
  }
}

/// Every schedule sees the fault.
template <class Schedules, class Run>
void expect_seen(const Planted& planted, const Schedules& schedules, const Run& run) {
  run_mutated(planted.mutation, schedules, run, [&](const std::string& message) {
    EXPECT_THAT(message, testing::ContainsRegex(planted.message));
  });
}

/// No schedule sees anything.
template <class Schedules, class Run>
void expect_survived(const Survivor& survivor, const Schedules& schedules, const Run& run) {
  run_mutated(survivor.mutation, schedules, run,
              [&](const std::string& message) { EXPECT_EQ(message, "") << survivor.reason; });
}

}  // namespace openvc::test
