// SPDX-License-Identifier: BSD-3-Clause
#include "study/self_check.hpp"

#include <gtest/gtest.h>

#include <set>

namespace openvc::study {
namespace {

TEST(SelfCheck, PassesHere) {
  std::size_t reported = 0;
  SelfCheckOptions options;
  options.smoke = true;
  options.threads = 2;
  options.finished = [&](const CheckResult&) { ++reported; };
  const auto results = run_self_check(check_targets().front(), options);
  std::set<std::string> groups;
  for (const CheckResult& result : results) {
    EXPECT_TRUE(result.passed) << result.name << ": " << result.value.measured << " > "
                               << result.value.limit << ", " << result.value.meaning;
    groups.insert(result.group);
  }
  EXPECT_EQ(reported, results.size());
  EXPECT_EQ(groups, (std::set<std::string>{"accuracy", "call", "codec", "identity"}));
}

}  // namespace
}  // namespace openvc::study
