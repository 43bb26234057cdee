// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "tensor_pipeline.hpp"

// Products of a block (tcgen05) against binary64.
namespace openvc::model {
namespace {

void expect_values(unsigned cluster_size) {
  TensorPipeline pipeline(cluster_size);
  const std::vector<float> scores = pipeline.expected_scores();
  const std::vector<float> sums = pipeline.expected_sums();
  for (const Schedule& schedule : kAllSchedules) {
    SCOPED_TRACE(schedule.describe());
    ASSERT_EQ(pipeline.run(schedule), "");
    EXPECT_TRUE(pipeline.scores == scores);
    EXPECT_TRUE(pipeline.sums == sums);
  }
}

TEST(ModelBlockProduct, ScoresAndSumsOfABlock) { expect_values(1); }
TEST(ModelBlockProduct, ScoresAndSumsOfACluster) { expect_values(2); }

}  // namespace
}  // namespace openvc::model
