// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/prepare/prepare.hpp"
#include "cuda/sm90/launch.hpp"
#include "golden/prepared_sweep.hpp"
#include "gpu/device_buffer.hpp"
#include "gpu/device_tensor.hpp"

// The device's preparation gives the golden bytes, of which the contract says that they are equal
// on every backend.
namespace openvc::golden {
namespace {

TEST(GoldenGpu, PreparedBytes) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  constexpr std::uint8_t kFiller = 0xA5;
  for (const PreparedCase& c : prepared_cases()) {
    SCOPED_TRACE(c.name);
    const PreparedInputs inputs(c);
    const test::DeviceTensor q(inputs.q, 0);
    const test::DeviceTensor k(inputs.k, 0);
    const test::DeviceTensor v(inputs.v, 0);
    const schedule::PrepareRequest request =
        prepare_request(c, q.view(), k.view(), v.view(), cuda::sm90::kPackedFormat);
    const test::DeviceBuffer block(schedule::prepared_layout(request).bytes, kFiller);
    const test::DeviceBuffer workspace(cuda::prepare::workspace_bytes(request), kFiller);
    cuda::check(cudaDeviceSynchronize(), "waiting for the inputs");
    cuda::prepare::launch(request, block.data(), workspace.data(), nullptr);
    const auto plans = cuda::prepare::read_plans(request, workspace.data(), nullptr);
    const std::vector<std::byte> bytes = block.download();
    expect_golden_prepared(c, request, bytes.data(), plans);
  }
}

}  // namespace
}  // namespace openvc::golden
