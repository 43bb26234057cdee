// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "gpu/api_case.hpp"
#include "gpu/sm90_fixture.hpp"
#include "openvc/attention.hpp"

// Head sizes below 128, heads that share K and V, and selections of keys, on a GPU.
namespace openvc::test {
namespace {

class ApiCudaSelection : public Sm90Test {
 protected:
  static void expect_agreement_with_cpu(const ApiCase& c, const Bounds& bounds = {}) {
    SCOPED_TRACE(c.describe());
    const CaseTensors tensors(c.inputs);
    const DeviceOutput out(c.problem(), c.inputs.type);
    call_on_device(c, tensors, out);
    cuda::check(cudaDeviceSynchronize(), "running attention");
    EXPECT_EQ(out.fault(true), "");
    EXPECT_EQ(disagreement(c.problem(), out.read(), call_on_cpu(c, tensors), bounds), "");
  }
};

ApiCase lengths(std::int64_t queries, std::int64_t keys) {
  ApiCase c;
  c.inputs.queries = queries;
  c.inputs.keys = keys;
  return c;
}

TEST_F(ApiCudaSelection, HeadSizes) {
  for (const int head_dim : {8, 16, 40, 64, 72, 80, 96, 112, 120}) {
    for (const ElementType type : {ElementType::bfloat16, ElementType::float16}) {
      for (const Layout layout : {Layout::contiguous, Layout::fused_qkv, Layout::odd_pitch}) {
        ApiCase c = lengths(200, 333);
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
    ApiCase c = lengths(2100, 4500);
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
    ApiCase c = lengths(300, 500);
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
  DeviceSelection(const std::vector<std::int32_t>& lengths, const std::vector<std::uint8_t>& mask,
                  std::int64_t keys)
      : lengths_(lengths.size() * sizeof(std::int32_t), 0), mask_(mask.size(), 0) {
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

/// Keys of sequence `b`.
std::vector<std::int64_t> selected(const PrepareCase& c, const std::vector<std::int32_t>& lengths,
                                   const std::vector<std::uint8_t>& mask, std::int64_t b) {
  std::vector<std::int64_t> keys;
  for (std::int64_t key = 0; key < c.keys; ++key) {
    if (!lengths.empty() && key >= lengths[static_cast<std::size_t>(b)]) break;
    if (mask.empty() || mask[static_cast<std::size_t>(b * c.keys + key)] != 0) keys.push_back(key);
  }
  return keys;
}

/// Bit for bit a call without the other keys, which hold NaN.
void expect_call_without_others(const ApiCase& c, const std::vector<std::int32_t>& lengths,
                                const std::vector<std::uint8_t>& mask) {
  SCOPED_TRACE(c.describe());
  CaseTensors tensors(c.inputs);
  const PrepareCase& inputs = c.inputs;
  for (std::int64_t b = 0; b < inputs.batch; ++b) {
    const auto keys = selected(inputs, lengths, mask, b);
    for (std::int64_t s = 0; s < inputs.keys; ++s) {
      if (std::ranges::binary_search(keys, s)) continue;
      for (std::int64_t h = 0; h < tensors.k.view().shape[kHead]; ++h) {
        for (std::int64_t channel = 0; channel < inputs.head_dim; ++channel) {
          tensors.k.set(b, s, h, channel, std::numeric_limits<float>::quiet_NaN());
          tensors.v.set(b, s, h, channel, std::numeric_limits<float>::infinity());
        }
      }
    }
  }
  tensors.device_k.upload(tensors.k);
  tensors.device_v.upload(tensors.v);
  const DeviceSelection selection(lengths, mask, inputs.keys);
  AttentionOptions options = c.options();
  options.keys = selection.view();
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
    const auto keys = selected(inputs, lengths, mask, b);
    const std::vector<float> output(found.output.begin() + b * output_size,
                                    found.output.begin() + (b + 1) * output_size);
    const std::vector<float> logs(found.log_sum_exp.begin() + b * log_size,
                                  found.log_sum_exp.begin() + (b + 1) * log_size);
    if (keys.empty()) {
      EXPECT_EQ(output, std::vector<float>(output.size(), 0.0f)) << b;
      EXPECT_EQ(logs, std::vector<float>(logs.size(), -std::numeric_limits<float>::infinity()));
      continue;
    }
    ApiCase one = c;
    one.inputs.batch = 1;
    one.inputs.keys = static_cast<std::int64_t>(keys.size());
    CaseTensors compact(one.inputs);
    const auto key = [&](std::int64_t s) { return keys[static_cast<std::size_t>(s)]; };
    compact.q.fill([&](auto, auto s, auto h, auto ch) { return tensors.q.get(b, s, h, ch); });
    compact.k.fill([&](auto, auto s, auto h, auto ch) { return tensors.k.get(b, key(s), h, ch); });
    compact.v.fill([&](auto, auto s, auto h, auto ch) { return tensors.v.get(b, key(s), h, ch); });
    compact.device_q.upload(compact.q);
    compact.device_k.upload(compact.k);
    compact.device_v.upload(compact.v);
    const DeviceOutput expected(one.problem(), inputs.type);
    call_on_device(one, compact, expected);
    cuda::check(cudaDeviceSynchronize(), "running attention");
    const AttentionResult alone = expected.read();
    EXPECT_EQ(output, alone.output) << b;
    EXPECT_EQ(logs, alone.log_sum_exp) << b;
  }
}

std::vector<std::uint8_t> random_mask(const PrepareCase& c, double share) {
  Random random(7);
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(c.batch * c.keys));
  for (std::uint8_t& byte : mask) {
    byte = static_cast<double>(random.next() >> 11) * 0x1p-53 < share ? 1 : 0;
  }
  return mask;
}

TEST_F(ApiCudaSelection, Lengths) {
  ApiCase c = lengths(300, 1000);
  c.inputs.batch = 5;
  expect_call_without_others(c, {1000, 1, 257, 0, 128}, {});
}

TEST_F(ApiCudaSelection, Masks) {
  for (const double share : {0.01, 0.5, 0.98}) {
    for (const int head_dim : {64, 128}) {
      ApiCase c = lengths(300, 1000);
      c.inputs.batch = 2;
      c.inputs.head_dim = head_dim;
      expect_call_without_others(c, {}, random_mask(c.inputs, share));
      expect_call_without_others(c, {700, 900}, random_mask(c.inputs, share));
    }
  }
}

TEST_F(ApiCudaSelection, LongMaskedSequencesOnAxes) {
  ApiCase c = lengths(4300, 9000);
  c.inputs.batch = 2;
  c.inputs.family = Family::outliers;
  c.inputs.numerics.rotation = Choice::always;
  c.inputs.numerics.value_axes = Choice::always;
  expect_call_without_others(c, {}, random_mask(c.inputs, 0.7));
  expect_call_without_others(c, {8000, 5000}, {});
}

}  // namespace
}  // namespace openvc::test
