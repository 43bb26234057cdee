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
                MaybeRefusal (*refusal)(const schedule::PrepareRequest&)) {
  Backend result{};
  result.name = name;
  result.device = device;
  result.refusal = refusal;
  return result;
}

MaybeRefusal accept(const schedule::PrepareRequest&) { return {}; }
MaybeRefusal refuse_device(const schedule::PrepareRequest&) {
  return Refusal{ErrorCode::unsupported, "q, k, v: device cuda:1 has compute capability 8.0."};
}
MaybeRefusal refuse_type(const schedule::PrepareRequest&) {
  return Refusal{ErrorCode::invalid_type, "q, k, v: element type float32."};
}

TEST(ChooseBackend, TakesTheFirstThatAccepts) {
  const Backend cpu = backend("cpu", DeviceType::cpu, accept);
  const Backend old = backend("sm90", DeviceType::cuda, refuse_device);
  const Backend young = backend("sm100", DeviceType::cuda, accept);
  const Backend* const all[] = {&cpu, &old, &young};
  schedule::PrepareRequest request;
  EXPECT_EQ(choose_backend(request, all).backend, &cpu);
  request.q.device = {DeviceType::cuda, 0};
  EXPECT_EQ(choose_backend(request, all).backend, &young);
}

TEST(ChooseBackend, CollectsTheReasons) {
  const Backend one = backend("sm90", DeviceType::cuda, refuse_device);
  const Backend two = backend("sm100", DeviceType::cuda, refuse_type);
  const Backend three = backend("sm120", DeviceType::cuda, refuse_device);
  const Backend* const all[] = {&one, &two, &three};
  schedule::PrepareRequest request;
  request.q.device = {DeviceType::cuda, 1};
  const BackendChoice choice = choose_backend(request, all);
  EXPECT_EQ(choice.backend, nullptr);
  EXPECT_EQ(choice.refusal.message,
            "q, k, v: device cuda:1 has compute capability 8.0. q, k, v: element type float32.")
      << "each reason once";
  EXPECT_EQ(choice.refusal.code, ErrorCode::unsupported) << "that of the first";
}

TEST(ChooseBackend, SaysWhenTheBuildHasNone) {
  schedule::PrepareRequest request;
  request.q.device = {DeviceType::cuda, 1};
  const BackendChoice choice = choose_backend(request, {});
  EXPECT_EQ(choice.backend, nullptr);
  EXPECT_THAT(choice.refusal.message,
              HasSubstr("device cuda:1, but this build has no backend for it"));
}

TEST(Backends, TheCpuIsAlwaysThere) {
  ASSERT_FALSE(backends().empty());
  EXPECT_STREQ(backends().front()->name, "cpu");
}

}  // namespace
}  // namespace openvc::api
