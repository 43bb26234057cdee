// SPDX-License-Identifier: BSD-3-Clause
//
// Kernels that compute what they should pass the check of a first use (src/api/first_use.hpp).
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "api/first_use_check.hpp"
#include "cpu/agreement.hpp"
#include "gpu/attention_fixture.hpp"

namespace openvc::test {
namespace {

study::OwnedTensor owned(const TensorView& view, const std::vector<std::uint16_t>& elements) {
  study::OwnedTensor tensor(view.type, view.shape);
  std::memcpy(tensor.bytes.data(), elements.data(), tensor.bytes.size());
  return tensor;
}

using FirstUse = Sm90Test;

TEST_F(FirstUse, TheKernelsPassItsCheck) {
  for (const api::FirstUseCase& c : api::first_use_cases()) {
    for (const AttentionKernel* kernel : kSmallKernels) {
      const schedule::PrepareRequest request = c.request();
      const AttentionCase attention{.kernel = kernel,
                                    .problem = c.problem,
                                    .numerics = c.numerics,
                                    .softmax_scale = request.softmax_scale};
      SCOPED_TRACE(attention.describe());
      const HostPrepared host(attention, study::Tensors{.q = owned(request.q, c.q),
                                                        .k = owned(request.k, c.k),
                                                        .v = owned(request.v, c.v)});
      const DevicePrepared device(host);
      const DeviceOutput out(c.problem, attention.type);
      run_on_device(device.view(), out, true, nullptr, *kernel);
      for (std::size_t head = 0; head < c.bounds.size(); ++head) {
        EXPECT_EQ(cpu::head_disagreement(c.problem, out.read(), run_on_cpu(host, attention.type),
                                         static_cast<std::int64_t>(head), c.bounds[head]),
                  "");
      }
    }
  }
}

}  // namespace
}  // namespace openvc::test
