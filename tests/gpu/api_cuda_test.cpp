// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "gpu/api_case.hpp"
#include "gpu/attention_fixture.hpp"
#include "openvc/info.hpp"

// The public interface on CUDA tensors: the values of the same call on the CPU.
namespace openvc::test {
namespace {

using ::testing::Contains;
using ::testing::MatchesRegex;

class ApiCuda : public Sm90Test {};

// Field cases A01, A03 and X03.
TEST_F(ApiCuda, ShapesTypesAndMasks) {
  constexpr std::int64_t kLengths[][2] = {{1, 1},     {1, 300},  {300, 1},    {65, 127},
                                          {129, 129}, {300, 77}, {1000, 1000}};
  for (const auto& length : kLengths) {
    for (const ElementType type : {ElementType::bfloat16, ElementType::float16}) {
      for (const Mask mask : {Mask::none, Mask::causal}) {
        ApiCase c = make_api_case(length[0], length[1], mask);
        c.inputs.type = type;
        c.inputs.batch = 2;
        c.inputs.heads = 3;
        expect_agreement_with_cpu(c);
      }
    }
  }
}

// Field cases C06, C09, C10 and C12.
TEST_F(ApiCuda, StridedInputs) {
  for (const Layout layout : kLayouts) {
    for (const std::size_t shift : {0, 2, 6, 8}) {
      ApiCase c = make_api_case(200, 333);
      c.inputs.batch = 2;
      c.inputs.heads = 3;
      c.inputs.layout = layout;
      c.inputs.shift = shift;
      expect_agreement_with_cpu(c);
    }
  }
}

// Field cases C10 and C12.
TEST_F(ApiCuda, StridedOutputs) {
  const ApiCase c = make_api_case(200, 333);
  const CaseTensors tensors(c.inputs);
  const DeviceOutput dense(c.problem(), c.inputs.type);
  call_on_device(c, tensors, dense);
  cuda::check(cudaDeviceSynchronize(), "running attention");
  const AttentionResult expected = dense.read();
  constexpr std::int64_t kRow = numerics::kHeadDim + 3;
  const DeviceOutput strided(
      c.problem(), c.inputs.type,
      {c.inputs.queries * c.inputs.heads * kRow, kRow, c.inputs.queries * kRow, 1}, 5);
  call_on_device(c, tensors, strided);
  cuda::check(cudaDeviceSynchronize(), "running attention");
  EXPECT_EQ(strided.fault(true), "");
  EXPECT_EQ(strided.read().output, expected.output);
}

// Field case B14.
TEST_F(ApiCuda, NumericOptions) {
  const auto with = [](auto change) {
    ApiCase c = make_api_case(500, 700);
    c.inputs.family = Family::offset;
    change(c.inputs.numerics);
    expect_agreement_with_cpu(c, {.flipped = 0.1});
  };
  with([](auto& n) { n.rotation = Choice::always; });
  with([](auto& n) { n.rotation = Choice::never; });
  with([](auto& n) { n.smooth_keys = n.smooth_values = false; });
  with([](auto& n) { n.value_scale = ValueScale::per_head; });
  for (const int steps : {0, 1, 2, 4}) {
    with([&](auto& n) {
      n.max_extra_steps = steps;
      n.score_error_target = 0.0f;
    });
  }
}

TEST_F(ApiCuda, PreparedInputsAreReusable) {
  const ApiCase c = make_api_case(300, 500);
  const CaseTensors tensors(c.inputs);
  const DeviceOutput whole(c.problem(), c.inputs.type);
  call_on_device(c, tensors, whole);
  const auto prepared = prepare(tensors.device_q.view(), tensors.device_k.view(),
                                tensors.device_v.view(), c.options(), true);
  EXPECT_EQ(prepared.device(), (Device{DeviceType::cuda, 0}));
  EXPECT_EQ(prepared.query_shape(), tensors.q.view().shape);
  EXPECT_TRUE(prepared.has_log_sum_exp());
  EXPECT_GT(prepared.bytes(), 0u);
  for (int i = 0; i < 3; ++i) {
    const DeviceOutput out(c.problem(), c.inputs.type);
    attention_prepared(prepared, out.view(), out.log_sum_exp());
    cuda::check(cudaDeviceSynchronize(), "running attention");
    EXPECT_EQ(out.bytes(), whole.bytes());
  }
}

// Field case A09.
TEST_F(ApiCuda, PlansAreThoseOfTheCpu) {
  for (const Family family : {Family::normal, Family::outliers, Family::offset, Family::zeros}) {
    ApiCase c = make_api_case(300, 500);
    c.inputs.family = family;
    c.inputs.heads = 4;
    const CaseTensors tensors(c.inputs);
    const auto on_device = prepare(tensors.device_q.view(), tensors.device_k.view(),
                                   tensors.device_v.view(), c.options())
                               .plans();
    const auto on_cpu =
        prepare(tensors.q.view(), tensors.k.view(), tensors.v.view(), c.options()).plans();
    ASSERT_EQ(on_device.size(), on_cpu.size());
    for (std::size_t i = 0; i < on_cpu.size(); ++i) {
      EXPECT_EQ(on_device[i].extra_steps, on_cpu[i].extra_steps);
      EXPECT_EQ(on_device[i].rotated, on_cpu[i].rotated);
      EXPECT_EQ(on_device[i].score_exponent, on_cpu[i].score_exponent);
      EXPECT_EQ(on_device[i].predicted_score_error, on_cpu[i].predicted_score_error);
    }
  }
}

TEST_F(ApiCuda, Repair) {
  for (const double budget : {0.005, 0.05, 0.5}) {
    ApiCase c = make_api_case(200, 900);
    c.inputs.repair_budget = budget;
    expect_agreement_with_cpu(c);
  }
  const ApiCase c = make_api_case(200, 900);
  const CaseTensors tensors(c.inputs);
  const DeviceOutput plain(c.problem(), c.inputs.type);
  call_on_device(c, tensors, plain);
  const DeviceOutput repaired(c.problem(), c.inputs.type);
  attention_prepared(prepare_repair(tensors.device_q.view(), tensors.device_k.view(),
                                    tensors.device_v.view(), 0.0, c.options(), true),
                     repaired.view(), repaired.log_sum_exp());
  cuda::check(cudaDeviceSynchronize(), "running attention");
  EXPECT_EQ(repaired.bytes(), plain.bytes()) << "budget 0 is plain attention";
}

// Field case D06.
TEST_F(ApiCuda, MoreHeadsThanAGridHasRows) {
  ApiCase c = make_api_case(2, 3);
  c.inputs.batch = 1000;
  c.inputs.heads = 70;
  c.inputs.numerics.max_extra_steps = 0;
  expect_agreement_with_cpu(c);
}

// Field cases B03 and B18.
TEST_F(ApiCuda, InputFamilies) {
  for (const Family family : kFamilies) {
    ApiCase c = make_api_case(300, 500);
    c.inputs.family = family;
    c.inputs.heads = 3;
    // Logits of thousands: the backends may disagree about the larger of two keys.
    const bool wide = family == Family::huge || family == Family::outliers;
    expect_agreement_with_cpu(
        c, wide ? Bounds{.flipped = 0.5, .undecided_rows = 0.05, .log_sum_exp = 1e38} : Bounds{});
  }
}

// Field case X04.
TEST_F(ApiCuda, LogSumExpIsOptional) {
  const ApiCase c = make_api_case(200, 333);
  const CaseTensors tensors(c.inputs);
  const DeviceOutput out(c.problem(), c.inputs.type);
  attention(tensors.device_q.view(), tensors.device_k.view(), tensors.device_v.view(), out.view());
  cuda::check(cudaDeviceSynchronize(), "running attention");
  EXPECT_EQ(out.fault(false), "");
  AttentionResult result = out.read();
  result.log_sum_exp.clear();
  EXPECT_EQ(disagreement(c.problem(), result, call_on_cpu(c, tensors)), "");
}

// Field case E10.
TEST_F(ApiCuda, InfoTellsWhatRan) {
  expect_agreement_with_cpu(make_api_case(100, 200));  // the CPU's call comes last
  const ApiCase c = make_api_case(100, 200);
  const CaseTensors tensors(c.inputs);
  const DeviceOutput out(c.problem(), c.inputs.type);
  call_on_device(c, tensors, out);
  const Info all = info();
  EXPECT_EQ(all.last_dispatch,
            "sm90 on cuda:0: bfloat16, B 1, H 2, Sq 100, Skv 200, at most 2 extra steps, "
            "log-sum-exp; image sm_90a");
  ASSERT_GT(all.backends.size(), 1u);
  EXPECT_EQ(all.backends[1].name, "sm90");
  EXPECT_EQ(all.backends[1].detail, "image sm_90a");
  EXPECT_THAT(all.cuda.images, Contains("sm_90a"));
  EXPECT_EQ(all.cuda.problem, "");
  EXPECT_THAT(all.cuda.driver, MatchesRegex("[0-9]+.[0-9]+"));
  ASSERT_EQ(all.cuda.devices.size(), static_cast<std::size_t>(cuda::device_count()));
  EXPECT_EQ(all.cuda.devices[0].name, cuda::device_info(0).name);
  EXPECT_EQ(all.cuda.devices[0].compute_capability, "9.0");
  EXPECT_EQ(all.cuda.devices[0].backend, "sm90");
  EXPECT_EQ(all.cuda.devices[0].refusal, "");
  EXPECT_TRUE(is_supported(tensors.device_q.view(), tensors.device_k.view(),
                           tensors.device_v.view(), c.options()));
  cuda::check(cudaDeviceSynchronize(), "running attention");
}

// OPENVC_RANDOM_CASES=<n> makes a soak of it.
TEST_F(ApiCuda, RandomCases) {
  const char* wanted = std::getenv("OPENVC_RANDOM_CASES");
  const int count = wanted != nullptr ? std::atoi(wanted) : 100;
  Random random(20260301);
  const auto below = [&](std::uint64_t limit) {
    return static_cast<std::int64_t>(random.next() % limit);
  };
  for (int i = 0; i < count && !HasFailure(); ++i) {
    ApiCase c;
    PrepareCase& in = c.inputs;
    in.type = below(2) == 0 ? ElementType::bfloat16 : ElementType::float16;
    in.batch = 1 + below(2);
    in.heads = 1 + below(4);
    in.queries = 1 + below(900);
    in.keys = below(2) == 0 ? in.queries : 1 + below(2000);
    in.layout = kLayouts[below(std::size(kLayouts))];
    in.family = below(2) == 0 ? Family::normal : Family::offset;
    in.shift = 2 * static_cast<std::size_t>(below(8));
    constexpr int kSteps[] = {0, 1, 2, 4};
    in.numerics.max_extra_steps = kSteps[below(4)];
    in.numerics.score_error_target = static_cast<float>(below(5)) * 0.2f;
    in.numerics.rotation = static_cast<Choice>(below(3));
    in.numerics.smooth_keys = below(3) != 0;
    in.numerics.smooth_values = below(3) != 0;
    in.numerics.value_scale = static_cast<ValueScale>(below(2));
    c.mask = below(3) == 0 ? Mask::causal : Mask::none;
    c.key_order = below(3) == 0 ? KeyOrder::descending : KeyOrder::mid_window;
    if (c.mask == Mask::none && below(2) == 0) {
      in.repair_budget = 0.001 * static_cast<double>(below(300));
    }
    in.seed = random.next() % 1000;
    expect_agreement_with_cpu(c, {.flipped = 0.1});
  }
}

}  // namespace
}  // namespace openvc::test
