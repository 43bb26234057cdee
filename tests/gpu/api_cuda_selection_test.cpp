// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "gpu/api_case.hpp"
#include "gpu/attention_fixture.hpp"
#include "gpu/selection_case.hpp"
#include "openvc/attention.hpp"

// Head sizes below 128, heads that share K and V, and selections of keys, on a GPU.
namespace openvc::test {
namespace {

class ApiCudaSelection : public Sm90Test {};

TEST_F(ApiCudaSelection, HeadSizes) {
  for (const int head_dim : {8, 16, 40, 64, 72, 80, 96, 112, 120}) {
    for (const ElementType type : {ElementType::bfloat16, ElementType::float16}) {
      for (const Layout layout : {Layout::contiguous, Layout::fused_qkv, Layout::odd_pitch}) {
        ApiCase c = make_api_case(200, 333);
        c.inputs.head_dim = head_dim;
        c.inputs.type = type;
        c.inputs.layout = layout;
        expect_agreement_with_cpu(c);
        c.mask = Mask::causal;
        expect_agreement_with_cpu(c);
      }
    }
  }
}

TEST_F(ApiCudaSelection, HeadSizesWithAxesStepsAndRepair) {
  for (const int head_dim : {16, 64, 112}) {
    ApiCase c = make_api_case(2100, 4500);
    c.inputs.head_dim = head_dim;
    c.inputs.family = Family::outliers;
    // Scores of four hundred nats: binary16 holds every fourth code unit there, and the backends
    // may disagree about the larger of two keys.
    const Bounds bounds{.flipped = 0.1, .undecided_rows = 0.002, .log_sum_exp = 4 * kCodeStepNats};
    expect_agreement_with_cpu(c, bounds);
    c.inputs.numerics.score_error_target = 0.0f;
    expect_agreement_with_cpu(c, bounds);
    c.inputs.repair_budget = 0.02;
    expect_agreement_with_cpu(c, bounds);
  }
}

TEST_F(ApiCudaSelection, GroupsOfQueries) {
  for (const std::int64_t group : {2, 3, 6}) {
    ApiCase c = make_api_case(300, 500);
    c.inputs.batch = 2;
    c.inputs.heads = 6;
    c.inputs.heads_per_group = group;
    c.inputs.head_dim = 64;
    expect_agreement_with_cpu(c);
    c.inputs.head_dim = numerics::kHeadDim;
    expect_agreement_with_cpu(c);
  }
}

/// A selection in device memory.
class DeviceSelection {
 public:
  DeviceSelection(const SelectionCase& selection, std::int64_t keys)
      : lengths_(selection.lengths.size() * sizeof(std::int32_t), 0),
        mask_(selection.mask.size(), 0) {
    const auto& [lengths, mask] = selection;
    if (!lengths.empty()) {
      lengths_.upload(reinterpret_cast<const std::byte*>(lengths.data()), lengths_.size(), 0);
      view_.lengths = reinterpret_cast<const std::int32_t*>(lengths_.data());
    }
    if (!mask.empty()) {
      mask_.upload(reinterpret_cast<const std::byte*>(mask.data()), mask_.size(), 0);
      view_.mask = reinterpret_cast<const std::uint8_t*>(mask_.data());
      view_.mask_batch_stride = keys;
    }
  }

  [[nodiscard]] const KeySelection& view() const { return view_; }

 private:
  DeviceBuffer lengths_;
  DeviceBuffer mask_;
  KeySelection view_;
};

/// Bit for bit a call without the other keys, which hold NaN.
void expect_call_without_others(const ApiCase& c, const SelectionCase& selection) {
  SCOPED_TRACE(c.describe());
  const PrepareCase& inputs = c.inputs;
  CaseTensors tensors(inputs);
  spoil_other_keys(inputs, selection, tensors);
  const DeviceSelection on_device(selection, inputs.keys);
  AttentionOptions options = c.options();
  options.keys = on_device.view();
  const DeviceOutput out(c.problem(), inputs.type);
  attention(tensors.device_q.view(), tensors.device_k.view(), tensors.device_v.view(), out.view(),
            out.log_sum_exp(), options);
  cuda::check(cudaDeviceSynchronize(), "running attention");
  EXPECT_EQ(out.fault(true), "");
  const AttentionResult found = out.read();
  const auto output_size =
      static_cast<std::ptrdiff_t>(inputs.queries * inputs.heads * inputs.head_dim);
  const auto log_size = static_cast<std::ptrdiff_t>(inputs.queries * inputs.heads);
  for (std::int64_t b = 0; b < inputs.batch; ++b) {
    const std::vector<std::int64_t> keys = selection.keys(inputs, b);
    const std::vector<float> output(found.output.begin() + b * output_size,
                                    found.output.begin() + (b + 1) * output_size);
    const std::vector<float> logs(found.log_sum_exp.begin() + b * log_size,
                                  found.log_sum_exp.begin() + (b + 1) * log_size);
    if (keys.empty()) {
      EXPECT_EQ(output, std::vector<float>(output.size(), 0.0f)) << b;
      EXPECT_EQ(logs, std::vector<float>(logs.size(), -std::numeric_limits<float>::infinity()));
      continue;
    }
    const SequenceAlone one(inputs, tensors, b, keys);
    ApiCase alone_case = c;
    alone_case.inputs = one.inputs;
    const DeviceOutput expected(alone_case.problem(), inputs.type);
    call_on_device(alone_case, one.tensors, expected);
    cuda::check(cudaDeviceSynchronize(), "running attention");
    const AttentionResult alone = expected.read();
    EXPECT_EQ(output, alone.output) << b;
    EXPECT_EQ(logs, alone.log_sum_exp) << b;
  }
}

TEST_F(ApiCudaSelection, Lengths) {
  ApiCase c = make_api_case(300, 1000);
  c.inputs.batch = 5;
  expect_call_without_others(c, {.lengths = {1000, 1, 257, 0, 128}});
}

TEST_F(ApiCudaSelection, Masks) {
  for (const double share : {0.01, 0.5, 0.98}) {
    for (const int head_dim : {64, 128}) {
      ApiCase c = make_api_case(300, 1000);
      c.inputs.batch = 2;
      c.inputs.head_dim = head_dim;
      expect_call_without_others(c, {.mask = random_mask(c.inputs, share)});
      expect_call_without_others(c, {.lengths = {700, 900}, .mask = random_mask(c.inputs, share)});
    }
  }
}

TEST_F(ApiCudaSelection, LongMaskedSequencesOnAxes) {
  ApiCase c = make_api_case(4300, 9000);
  c.inputs.batch = 2;
  c.inputs.family = Family::outliers;
  c.inputs.numerics.rotation = Choice::always;
  c.inputs.numerics.value_axes = Choice::always;
  expect_call_without_others(c, {.mask = random_mask(c.inputs, 0.7)});
  expect_call_without_others(c, {.lengths = {8000, 5000}});
}

}  // namespace
}  // namespace openvc::test
