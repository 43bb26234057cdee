// SPDX-License-Identifier: BSD-3-Clause
#include "api/backend.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace openvc::api {
namespace {

using testing::HasSubstr;

Backend backend(const char* name, DeviceType device,
                std::string (*refusal)(const schedule::PrepareRequest&)) {
  Backend result{};
  result.name = name;
  result.device = device;
  result.refusal = refusal;
  return result;
}

std::string accept(const schedule::PrepareRequest&) { return {}; }
std::string refuse(const schedule::PrepareRequest&) {
  return "built for sm_90a, the device is sm_80.";
}

TEST(ChooseBackend, TakesTheFirstThatAccepts) {
  const Backend cpu = backend("cpu", DeviceType::cpu, accept);
  const Backend old = backend("sm90", DeviceType::cuda, refuse);
  const Backend young = backend("sm100", DeviceType::cuda, accept);
  const Backend* const all[] = {&cpu, &old, &young};
  schedule::PrepareRequest request;
  EXPECT_EQ(choose_backend(request, all).backend, &cpu);
  request.q.device = {DeviceType::cuda, 0};
  EXPECT_EQ(choose_backend(request, all).backend, &young);
}

TEST(ChooseBackend, CollectsTheReasons) {
  const Backend old = backend("sm90", DeviceType::cuda, refuse);
  const Backend* const all[] = {&old};
  schedule::PrepareRequest request;
  request.q.device = {DeviceType::cuda, 1};
  const BackendChoice choice = choose_backend(request, all);
  EXPECT_EQ(choice.backend, nullptr);
  EXPECT_EQ(choice.reason, "sm90: built for sm_90a, the device is sm_80.");
}

TEST(ChooseBackend, SaysWhenTheBuildHasNone) {
  schedule::PrepareRequest request;
  request.q.device = {DeviceType::cuda, 1};
  const BackendChoice choice = choose_backend(request, {});
  EXPECT_EQ(choice.backend, nullptr);
  EXPECT_THAT(choice.reason, HasSubstr("device cuda:1, but this build has no backend for it"));
}

TEST(Backends, TheCpuIsAlwaysThere) {
  ASSERT_FALSE(backends().empty());
  EXPECT_STREQ(backends().front()->name, "cpu");
}

}  // namespace
}  // namespace openvc::api
