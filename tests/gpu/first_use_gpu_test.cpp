// SPDX-License-Identifier: BSD-3-Clause
//
// The check of a first use, made on the backend of this GPU as if it had never run on one.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "api/first_use.hpp"
#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "gpu/attention_fixture.hpp"

namespace openvc::test {
namespace {

class FirstUseOnDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
    schedule::PrepareRequest request;
    request.q.device = kDevice;
    const api::BackendChoice choice = api::choose_backend(request, api::backends());
    if (choice.backend == nullptr) GTEST_SKIP() << choice.refusal.message;
    backend_ = *choice.backend;
    backend_.run_on_hardware = false;
  }

  static constexpr Device kDevice{DeviceType::cuda, 0};
  api::Backend backend_{};
};

TEST_F(FirstUseOnDevice, Passes) {
  api::FirstUse uses;
  EXPECT_NO_THROW(uses.require(backend_, kDevice, {}));
  EXPECT_FALSE(uses.known_refusal(backend_, kDevice));
}

TEST_F(FirstUseOnDevice, FindsAnOutputThatNobodyWrote) {
  api::FirstUse uses;
  backend_.run = [](const Prepared::Impl&, const MutableTensorView&, float*, const Execution&) {};
  EXPECT_THROW(uses.require(backend_, kDevice, {}), Error);
}

/// The capture of the call itself refuses, that of another stream is left alone.
TEST_F(FirstUseOnDevice, WhileStreamsAreCaptured) {
  const Stream captured;
  cuda::check(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal), "beginning a capture");
  api::FirstUse uses;
  Execution execution;
  execution.stream = captured;
  try {
    uses.require(backend_, kDevice, execution);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
  }
  const Stream other;
  execution.stream = other;
  EXPECT_NO_THROW(uses.require(backend_, kDevice, execution));
  execution.stream = captured;
  EXPECT_NO_THROW(uses.require(backend_, kDevice, execution)) << "checked by now";
  cudaGraph_t graph = nullptr;
  cuda::check(cudaStreamEndCapture(captured, &graph), "ending a capture");
  std::size_t nodes = 1;
  cuda::check(cudaGraphGetNodes(graph, nullptr, &nodes), "counting the nodes of a graph");
  EXPECT_EQ(nodes, 0u) << "the check is no part of the graph";
  cuda::check(cudaGraphDestroy(graph), "destroying a graph");
}

}  // namespace
}  // namespace openvc::test
