// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "gpu/attention_fixture.hpp"
#include "gpu/recorded_outputs.hpp"
#include "gpu/recorded_problems.hpp"

// The Hopper kernel on small problems, against what it wrote on an H200, on a GPU and on the model
// of the machine: outputs bit for bit, log-sum-exps within the last place of a logarithm, because
// the model takes the host's logf.
//
// OPENVC_RECORD_OUTPUTS, the path of a file: what the kernel writes is stored there, and compared
// with nothing.
namespace openvc::test {
namespace {

constexpr std::uint32_t kFloatInfinity = 0x7F80'0000u;
constexpr std::uint16_t kHalfInfinity = 0x7C00u;
constexpr std::uint16_t kBfloat16Infinity = 0x7F80u;

// Sums of weights of these problems are below e^16, so that this is the most that two logf can
// differ by which are a unit of the last place apart.
constexpr float kLogarithmUnit = 0x1p-20f;
// An H200's logf is not the nearest number in 4 % of all cases, and glibc's need not be.
constexpr std::int64_t kElementsForOneDifference = 20;

class RecordedOutputsTest : public Sm90Test {
 protected:
  static RecordedOutput run(const RecordedProblem& problem) {
    const HostPrepared host(problem.c, problem.tensors);
    const DevicePrepared device(host);
    const DeviceOutput out(problem.c.problem, problem.c.type);
    run_on_device(device.view(), out);
    EXPECT_EQ(out.fault(true), "");
    RecordedOutput result;
    result.inputs = golden::Hash().bytes(host.view().data, host.view().layout.bytes).result();
    result.output = out.output_bytes();
    result.log_sum_exp = out.log_sum_exp_bytes();
    return result;
  }
};

TEST_F(RecordedOutputsTest, EqualAnH200s) {
  const char* record = std::getenv("OPENVC_RECORD_OUTPUTS");
  const std::string path = golden::golden_path("h200_outputs.bin");
  const RecordedOutputs expected = read_recorded(path);
  if (record == nullptr) ASSERT_FALSE(expected.empty()) << "there is no " << path;
  RecordedOutputs outputs;
  std::int64_t logarithms = 0;
  std::int64_t differing_logarithms = 0;
  std::string table = "elements that differ, by how many units of the last place:\n";
  for (const RecordedProblem& problem : recorded_problems()) {
    SCOPED_TRACE(problem.name);
    const RecordedOutput& mine = outputs[problem.name] = run(problem);
    if (record != nullptr) continue;
    const auto found = expected.find(problem.name);
    ASSERT_NE(found, expected.end()) << "not in " << path;
    const RecordedOutput& theirs = found->second;
    SCOPED_TRACE(mine.inputs == theirs.inputs ? "the same prepared bytes"
                                              : "other prepared bytes, which may be why");
    ASSERT_EQ(mine.output.size(), theirs.output.size());
    ASSERT_EQ(mine.log_sum_exp.size(), theirs.log_sum_exp.size());
    const Difference output = difference<std::uint16_t>(
        mine.output, theirs.output,
        problem.c.type == ElementType::float16 ? kHalfInfinity : kBfloat16Infinity);
    const Difference log_sum_exp =
        difference<std::uint32_t>(mine.log_sum_exp, theirs.log_sum_exp, kFloatInfinity);
    table += problem.name + ": output " + output.describe() + "; log-sum-exp " +
             log_sum_exp.describe() + "\n";
    EXPECT_EQ(output.bits, 0) << output.describe();
    EXPECT_EQ(apart(mine.log_sum_exp, theirs.log_sum_exp, kLogarithmUnit), 0)
        << log_sum_exp.describe();
    logarithms += log_sum_exp.elements;
    differing_logarithms += log_sum_exp.bits;
  }
  EXPECT_LE(differing_logarithms * kElementsForOneDifference, logarithms);
  if (record != nullptr) write_recorded(record, outputs);
  RecordProperty("differences", table);
  if (HasFailure()) ADD_FAILURE() << table;
}

}  // namespace
}  // namespace openvc::test
