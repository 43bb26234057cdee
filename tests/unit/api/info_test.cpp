// SPDX-License-Identifier: BSD-3-Clause
#include "openvc/info.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <string>

#include "openvc/attention.hpp"
#include "unit/cpu/test_tensor.hpp"

namespace openvc {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string dispatch_of(const AttentionOptions& options, bool with_log_sum_exp, double budget) {
  const test::Shape shape{1, 40, 2, 128};
  test::TestTensor q(ElementType::bfloat16, shape);
  q.fill_normal(1);
  test::TestTensor out(ElementType::bfloat16, shape);
  const Prepared prepared =
      prepare_repair(q.view(), q.view(), q.view(), budget, options, with_log_sum_exp);
  attention_prepared(prepared, out.mutable_view());
  return info().last_dispatch;
}

TEST(Info, LastDispatchNamesTheConfiguration) {
  const std::string detail = info().backends.front().detail;
  EXPECT_EQ(dispatch_of({}, false, 0.0),
            "cpu on cpu: bfloat16, B 1, H 2, Sq 40, Skv 40, at most 2 extra steps; " + detail);
  AttentionOptions options;
  options.mask = Mask::causal;
  options.key_order = KeyOrder::descending;
  options.numerics.max_extra_steps = 0;
  EXPECT_THAT(dispatch_of(options, true, 0.0),
              HasSubstr("Skv 40, causal, descending, at most 0 extra steps, log-sum-exp; "));
  EXPECT_THAT(dispatch_of({}, false, 0.1), HasSubstr("repair rows 4, "));
}

// Field cases E10 and F07: what would run, or why nothing would.
TEST(Info, CudaHasDevicesOrAProblem) {
  const CudaInfo cuda = info().cuda;
  EXPECT_NE(cuda.devices.empty(), cuda.problem.empty()) << cuda.problem;
  for (const CudaDeviceInfo& device : cuda.devices) {
    EXPECT_NE(device.backend.empty(), device.refusal.empty()) << device.refusal;
    EXPECT_FALSE(device.name.empty());
  }
  for (const std::string& image : cuda.images) EXPECT_THAT(image, StartsWith("sm_"));
}

TEST(Info, JsonHoldsWhatTheStructureHolds) {
  const Info all = info();
  const auto json = nlohmann::json::parse(info_json());
  EXPECT_EQ(json.at("version"), all.version);
  EXPECT_EQ(json.at("contract_version"), all.contract_version);
  EXPECT_EQ(json.at("cpu_simd_target"), all.cpu_simd_target);
  EXPECT_EQ(json.at("cpu_threads"), all.cpu_threads);
  EXPECT_EQ(json.at("cpu_threads_reason"), all.cpu_threads_reason);
  EXPECT_EQ(json.at("last_dispatch"), all.last_dispatch);
  ASSERT_EQ(json.at("backends").size(), all.backends.size());
  EXPECT_EQ(json.at("backends").at(0).at("name"), "cpu");
  EXPECT_EQ(json.at("backends").at(0).at("device"), "cpu");
  EXPECT_EQ(json.at("backends").at(0).at("detail"), all.backends[0].detail);
  EXPECT_EQ(json.at("backends").at(0).at("run_on_hardware"), true);
  const auto& cuda = json.at("cuda");
  EXPECT_EQ(cuda.at("images"), nlohmann::json(all.cuda.images));
  EXPECT_EQ(cuda.at("runtime"), all.cuda.runtime);
  EXPECT_EQ(cuda.at("driver"), all.cuda.driver);
  EXPECT_EQ(cuda.at("driver_package"), all.cuda.driver_package);
  EXPECT_EQ(cuda.at("problem"), all.cuda.problem);
  ASSERT_EQ(cuda.at("devices").size(), all.cuda.devices.size());
  for (std::size_t i = 0; i < all.cuda.devices.size(); ++i) {
    EXPECT_EQ(cuda.at("devices").at(i).at("index"), all.cuda.devices[i].index);
    EXPECT_EQ(cuda.at("devices").at(i).at("name"), all.cuda.devices[i].name);
    EXPECT_EQ(cuda.at("devices").at(i).at("compute_capability"),
              all.cuda.devices[i].compute_capability);
    EXPECT_EQ(cuda.at("devices").at(i).at("backend"), all.cuda.devices[i].backend);
    EXPECT_EQ(cuda.at("devices").at(i).at("refusal"), all.cuda.devices[i].refusal);
  }
}

}  // namespace
}  // namespace openvc
