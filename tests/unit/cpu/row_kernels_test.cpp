// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/row_kernels.hpp"

#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cstdint>
#include <set>
#include <string>

#include "unit/cpu/prepare_reference.hpp"
#include "unit/cpu/test_tensor.hpp"

namespace openvc::test {
namespace {

/// Dispatches to one instruction set of this machine while it lives.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) { hwy::SetSupportedTargetsForTest(target); }
  ~OnlyTarget() { hwy::SetSupportedTargetsForTest(0); }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;
};

/// Instruction sets without a fused multiply-add must give the bits of those that have it, which
/// shows on float32 inputs: products of 16-bit numbers are exact anyway.
TEST(RowKernels, EveryInstructionSetGivesTheSameBytes) {
  constexpr Shape kShape{1, 300, 2, numerics::kHeadDim};
  TestTensor q(ElementType::float32, kShape);
  TestTensor k(ElementType::float32, kShape);
  TestTensor v(ElementType::float32, kShape);
  schedule::PrepareRequest request;
  request.format = cpu::kPackedFormat;
  request.q = q.fill_normal(1).view();
  request.k = k.fill_normal(2).view();
  request.v = v.fill_normal(3).view();
  request.problem.heads = 2;
  request.problem.queries = request.problem.keys = kShape[kSequence];
  request.problem.repair_rows = 7;
  request.softmax_scale = 0.1f;
  request.with_log_sum_exp = true;
  request.numerics.score_error_target = 0.0f;

  std::set<std::string> ran;
  for (const Choice rotation : {Choice::never, Choice::always}) {
    request.numerics.rotation = rotation;
    const PreparedBytes expected = reference_prepare(request);
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      const OnlyTarget only(target);
      ran.insert(cpu::simd_target());
      EXPECT_EQ(first_difference(request, run_prepare(request), expected), "")
          << cpu::simd_target();
    }
  }
  EXPECT_EQ(ran.size(), hwy::SupportedAndGeneratedTargets().size());
}

}  // namespace
}  // namespace openvc::test
