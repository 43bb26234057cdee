// SPDX-License-Identifier: BSD-3-Clause
#include "openvc/attention.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "openvc/info.hpp"
#include "unit/cpu/test_tensor.hpp"

namespace openvc {
namespace {

using test::Random;
using test::Shape;
using test::TestTensor;
using testing::HasSubstr;

constexpr std::int64_t kD = 128;

struct Inputs {
  explicit Inputs(ElementType type = ElementType::bfloat16, std::int64_t batch = 2,
                  std::int64_t heads = 2, std::int64_t queries = 150, std::int64_t keys = 270)
      : q(type, {batch, queries, heads, kD}),
        k(type, {batch, keys, heads, kD}),
        v(type, {batch, keys, heads, kD}) {
    q.fill_normal(1);
    k.fill_normal(2);
    v.fill_normal(3);
  }

  [[nodiscard]] TestTensor out() const { return {q.view().type, q.view().shape}; }

  TestTensor q;
  TestTensor k;
  TestTensor v;
};

/// Relative L2 distance of the output to softmax(scale q k^T) v in double precision.
double relative_error(const Inputs& in, const TestTensor& out, Mask mask = Mask::none,
                      std::vector<double>* log_sum_exp = nullptr) {
  const Shape shape = in.q.view().shape;
  const std::int64_t keys = in.k.view().shape[kSequence];
  double error = 0.0;
  double norm = 0.0;
  if (log_sum_exp != nullptr) {
    log_sum_exp->assign(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]), 0.0);
  }
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t h = 0; h < shape[2]; ++h) {
      for (std::int64_t i = 0; i < shape[1]; ++i) {
        std::vector<double> expected(kD, 0.0);
        double sum = 0.0;
        const std::int64_t seen = mask == Mask::causal ? i + 1 + keys - shape[1] : keys;
        for (std::int64_t j = 0; j < seen; ++j) {
          double score = 0.0;
          for (std::int64_t c = 0; c < kD; ++c) {
            score += static_cast<double>(in.q.get(b, i, h, c)) * in.k.get(b, j, h, c);
          }
          const double p = std::exp(score / std::sqrt(128.0));
          sum += p;
          for (std::int64_t c = 0; c < kD; ++c) {
            expected[static_cast<std::size_t>(c)] += p * in.v.get(b, j, h, c);
          }
        }
        if (log_sum_exp != nullptr) {
          (*log_sum_exp)[static_cast<std::size_t>((b * shape[2] + h) * shape[1] + i)] =
              std::log(sum);
        }
        for (std::int64_t c = 0; c < kD; ++c) {
          const double exact = sum > 0.0 ? expected[static_cast<std::size_t>(c)] / sum : 0.0;
          const double difference = out.get(b, i, h, c) - exact;
          error += difference * difference;
          norm += exact * exact;
        }
      }
    }
  }
  return std::sqrt(error / norm);
}

/// Gaussian inputs are the worst case for E4M3: nothing averages out. docs/numerics.md section 9.
constexpr double kGaussianError = 0.07;

template <class Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "expected an Error";
  return {ErrorCode::device_failure, ""};
}

class AttentionTypes : public testing::TestWithParam<ElementType> {};

TEST_P(AttentionTypes, ComesCloseToExactAttention) {
  const Inputs in(GetParam());
  TestTensor out = in.out();
  attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view());
  EXPECT_LT(relative_error(in, out), kGaussianError);
  EXPECT_TRUE(out.surroundings_untouched());
}

INSTANTIATE_TEST_SUITE_P(, AttentionTypes,
                         testing::Values(ElementType::bfloat16, ElementType::float16,
                                         ElementType::float32));

TEST(Attention, LogSumExpIsThatOfTheUnsmoothedScores) {
  Inputs in(ElementType::float32, 2, 2, 40, 300);
  Random random(5);
  in.k.fill([&](auto, auto, auto, std::int64_t c) {
    return random.normal() + (c % 2 == 0 ? 1.5f : -0.5f);
  });
  TestTensor out = in.out();
  std::vector<float> logs(2 * 2 * 40);
  attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view(), logs.data());
  std::vector<double> expected;
  relative_error(in, out, Mask::none, &expected);
  for (std::size_t i = 0; i < logs.size(); ++i) EXPECT_NEAR(logs[i], expected[i], 0.1) << i;
}

TEST(Attention, CausalIsAlignedToTheBottomRight) {
  const Inputs in(ElementType::bfloat16, 1, 2, 100, 140);
  AttentionOptions options;
  options.mask = Mask::causal;
  TestTensor out = in.out();
  attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view(), nullptr, options);
  EXPECT_LT(relative_error(in, out, Mask::causal), kGaussianError);
}

TEST(Attention, QueriesWithoutKeysGiveZeros) {
  const Inputs in(ElementType::bfloat16, 1, 1, 140, 100);
  AttentionOptions options;
  options.mask = Mask::causal;
  TestTensor out = in.out();
  std::vector<float> logs(140);
  attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view(), logs.data(), options);
  for (std::int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(out.get(0, i, 0, 3), 0.0f) << i;
    EXPECT_EQ(logs[static_cast<std::size_t>(i)], -std::numeric_limits<float>::infinity()) << i;
  }
  EXPECT_TRUE(std::isfinite(logs[40]));
}

TEST(Attention, OutputMayHaveAnyStrides) {
  const Inputs in;
  TestTensor contiguous = in.out();
  attention(in.q.view(), in.k.view(), in.v.view(), contiguous.mutable_view());
  const Shape shape = in.q.view().shape;
  for (const Shape& strides : {Shape{2 * 150 * kD, kD, 150 * kD, 1}, Shape{150 * 391, 391, 130, 1},
                               Shape{-150 * 2 * kD, -2 * kD, -kD, 1}}) {
    TestTensor out(ElementType::bfloat16, shape, strides);
    attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view());
    out.for_each([&](std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t c) {
      ASSERT_EQ(out.get(b, s, h, c), contiguous.get(b, s, h, c));
    });
    EXPECT_TRUE(out.surroundings_untouched());
  }
}

TEST(Attention, EqualsPrepareAndAttentionPrepared) {
  const Inputs in;
  TestTensor once = in.out();
  attention(in.q.view(), in.k.view(), in.v.view(), once.mutable_view());
  const Prepared prepared = prepare(in.q.view(), in.k.view(), in.v.view());
  for (const int threads : {1, 2, 3}) {
    TestTensor out = in.out();
    attention_prepared(prepared, out.mutable_view(), nullptr, {.threads = threads});
    EXPECT_EQ(out.bytes(), once.bytes());
  }
}

TEST(Attention, InputsAreNotModified) {
  const Inputs in;
  const Inputs before;
  TestTensor out = in.out();
  attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view());
  EXPECT_EQ(in.q.bytes(), before.q.bytes());
  EXPECT_EQ(in.k.bytes(), before.k.bytes());
  EXPECT_EQ(in.v.bytes(), before.v.bytes());
}

TEST(Attention, NonFiniteElementsStayInTheirHeadAndVisible) {
  Inputs in;
  TestTensor clean = in.out();
  attention(in.q.view(), in.k.view(), in.v.view(), clean.mutable_view());
  for (TestTensor* tensor : {&in.q, &in.k, &in.v}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const float before = tensor->get(1, 20, 0, 7);
      tensor->set(1, 20, 0, 7, bad);
      TestTensor out = in.out();
      attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view());
      out.for_each([&](std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t c) {
        if (b == 1 && h == 0) {
          ASSERT_FALSE(std::isfinite(out.get(b, s, h, c)));
        } else {
          ASSERT_EQ(out.get(b, s, h, c), clean.get(b, s, h, c));
        }
      });
      tensor->set(1, 20, 0, 7, before);
    }
  }
}

TEST(Attention, FiniteForEveryFiniteInput) {
  for (const float q : {1e-40f, 1.0f, 3e38f}) {
    for (const float k : {1e-40f, 1.0f, 3e38f}) {
      for (const float v : {1e-40f, 1.0f, 3e38f}) {
        Inputs in(ElementType::bfloat16, 1, 1, 70, 150);
        Random random(9);
        const auto fill = [&](float scale) {
          return [&, scale](auto...) { return scale * std::tanh(random.normal()); };
        };
        in.q.fill(fill(q));
        in.k.fill(fill(k));
        in.v.fill(fill(v));
        TestTensor out = in.out();
        std::vector<float> logs(70);
        attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view(), logs.data());
        out.for_each([&](std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t c) {
          ASSERT_TRUE(std::isfinite(out.get(b, s, h, c))) << q << " " << k << " " << v;
        });
        for (const float log : logs) ASSERT_FALSE(std::isnan(log));
      }
    }
  }
}

TEST(Attention, ConstantValuesComeBack) {
  Inputs in(ElementType::bfloat16, 1, 1, 5, 300);
  in.v.fill([](auto, auto, auto, std::int64_t c) { return static_cast<float>(c) - 64.0f; });
  TestTensor out = in.out();
  attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view());
  out.for_each([&](std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t c) {
    ASSERT_EQ(out.get(b, s, h, c), static_cast<float>(c) - 64.0f);
  });
}

TEST(Prepared, TellsWhatItHolds) {
  const Inputs in(ElementType::float16, 2, 3, 50, 200);
  const Prepared prepared = prepare_repair(in.q.view(), in.k.view(), in.v.view(), 0.1, {}, true);
  EXPECT_EQ(prepared.query_shape(), (Shape{2, 50, 3, kD}));
  EXPECT_EQ(prepared.key_shape(), (Shape{2, 200, 3, kD}));
  EXPECT_EQ(prepared.element_type(), ElementType::float16);
  EXPECT_EQ(prepared.device(), Device{});
  EXPECT_EQ(prepared.plans().size(), 6u);
  EXPECT_EQ(prepared.repair_rows(), 20);
  EXPECT_TRUE(prepared.has_log_sum_exp());
  EXPECT_GT(prepared.bytes(), 6u * (256 + 2 * 384) * kD);
}

TEST(PrepareRepair, BudgetZeroIsPlainAttention) {
  const Inputs in;
  TestTensor plain = in.out();
  attention(in.q.view(), in.k.view(), in.v.view(), plain.mutable_view());
  const Prepared prepared = prepare_repair(in.q.view(), in.k.view(), in.v.view(), 0.0);
  EXPECT_EQ(prepared.repair_rows(), 0);
  TestTensor out = in.out();
  attention_prepared(prepared, out.mutable_view());
  EXPECT_EQ(out.bytes(), plain.bytes());
}

TEST(PrepareRepair, RemovesTheErrorOfV) {
  const Inputs in(ElementType::float32, 1, 2, 60, 400);
  double last = 1.0;
  for (const double budget : {0.0, 0.5, 0.999}) {
    TestTensor out = in.out();
    attention_prepared(prepare_repair(in.q.view(), in.k.view(), in.v.view(), budget),
                       out.mutable_view());
    const double error = relative_error(in, out);
    EXPECT_LT(error, last) << budget;
    last = error;
  }
}

TEST(Refusals, ReachTheCaller) {
  const Inputs in;
  TestTensor out = in.out();
  const auto run = [&](const AttentionOptions& options) {
    attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view(), nullptr, options);
  };
  AttentionOptions options;
  options.softmax_scale = -1.0f;
  EXPECT_THAT(error_of([&] { run(options); }).what(), HasSubstr("softmax_scale: -1"));

  const Error overlap = error_of([&] {
    Inputs mine;
    attention(mine.q.view(), mine.k.view(), mine.v.view(), mine.q.mutable_view());
  });
  EXPECT_THAT(overlap.what(), HasSubstr("out: memory overlaps q"));

  const Prepared prepared = prepare(in.q.view(), in.k.view(), in.v.view());
  std::vector<float> logs(2 * 2 * 150);
  const Error unprepared =
      error_of([&] { attention_prepared(prepared, out.mutable_view(), logs.data()); });
  EXPECT_EQ(unprepared.code(), ErrorCode::invalid_value);
  EXPECT_THAT(unprepared.what(), HasSubstr("log_sum_exp: asked for, but"));

  EXPECT_THAT(
      error_of([&] { (void)prepare_repair(in.q.view(), in.k.view(), in.v.view(), 1.0); }).what(),
      HasSubstr("budget: 1"));
  EXPECT_THAT(error_of([&] {
                attention_prepared(prepared, out.mutable_view(), nullptr, {.threads = -1});
              }).what(),
              HasSubstr("threads: -1"));
  TestTensor wrong(ElementType::float16, in.q.view().shape);
  EXPECT_EQ(error_of([&] { attention_prepared(prepared, wrong.mutable_view()); }).code(),
            ErrorCode::invalid_type);
}

TEST(Refusals, CudaTensorsWithoutACudaBackend) {
  const Inputs in;
  TensorView q = in.q.view();
  TensorView k = in.k.view();
  TensorView v = in.v.view();
  q.device = k.device = v.device = {DeviceType::cuda, 0};
  if (info().backends.size() > 1) GTEST_SKIP() << "this build has CUDA backends";
  const Error error = error_of([&] { (void)prepare(q, k, v); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.what(), HasSubstr("this build has no backend for it"));
  const Support support = is_supported(q, k, v);
  EXPECT_FALSE(support);
  EXPECT_EQ(support.reason, error.what());
}

TEST(ExactAttention, AgreesWithTheDefinitionForSomeRows) {
  const Inputs in(ElementType::float32, 2, 2, 30, 50);
  const std::int64_t rows[] = {29, 0, 7};
  std::vector<double> out(2 * 3 * 2 * kD);
  std::vector<double> logs(2 * 2 * 3);
  exact_attention(in.q.view(), in.k.view(), in.v.view(), rows, out.data(), logs.data());
  TestTensor rounded = in.out();
  std::vector<double> expected;
  relative_error(in, rounded, Mask::none, &expected);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t r = 0; r < 3; ++r) {
        EXPECT_NEAR(logs[static_cast<std::size_t>((b * 2 + h) * 3 + r)],
                    expected[static_cast<std::size_t>((b * 2 + h) * 30 + rows[r])], 1e-9);
      }
    }
  }
}

TEST(ExactAttention, RefusesWhatItCannotDo) {
  const Inputs in;
  const std::int64_t beyond[] = {150};
  double out[kD * 4];
  EXPECT_THAT(
      error_of([&] { exact_attention(in.q.view(), in.k.view(), in.v.view(), beyond, out); }).what(),
      HasSubstr("rows: 150"));
  EXPECT_THAT(
      error_of([&] { exact_attention(in.q.view(), in.k.view(), in.v.view(), {}, nullptr); }).what(),
      HasSubstr("out: pointer is null"));
  TensorView q = in.q.view();
  TensorView k = in.k.view();
  TensorView v = in.v.view();
  q.device = k.device = v.device = {DeviceType::cuda, 0};
  EXPECT_EQ(error_of([&] { exact_attention(q, k, v, {}, out); }).code(), ErrorCode::unsupported);
}

TEST(IsSupported, GivesTheReasonWithoutThrowing) {
  const Inputs in;
  const Support yes = is_supported(in.q.view(), in.k.view(), in.v.view());
  EXPECT_TRUE(yes);
  EXPECT_EQ(yes.reason, "");
  TensorView narrow = in.q.view();
  narrow.shape[kChannel] = 68;
  const Support no = is_supported(narrow, in.k.view(), in.v.view());
  EXPECT_FALSE(no);
  EXPECT_THAT(no.reason, HasSubstr("D = 68"));
}

// Whoever asks may have no memory yet.
TEST(IsSupported, LooksAtPointersForTheirAlignmentAlone) {
  const Inputs in;
  TensorView q = in.q.view();
  TensorView k = in.k.view();
  TensorView v = in.v.view();
  q.data = k.data = v.data = nullptr;
  EXPECT_TRUE(is_supported(q, k, v)) << is_supported(q, k, v).reason;
  q.data = k.data = v.data = reinterpret_cast<const void*>(4);  // of nobody's memory
  EXPECT_TRUE(is_supported(q, k, v)) << is_supported(q, k, v).reason;
  for (TensorView* misaligned : {&q, &k, &v}) {
    misaligned->data = reinterpret_cast<const void*>(5);
    const Support support = is_supported(q, k, v);
    EXPECT_FALSE(support);
    EXPECT_EQ(support.code, ErrorCode::invalid_value);
    EXPECT_THAT(support.reason, HasSubstr("data pointer"));
    EXPECT_EQ(error_of([&] { (void)prepare(q, k, v); }).what(), support.reason);
    misaligned->data = reinterpret_cast<const void*>(4);
  }
}

// Devices that no machine has, in builds with and without CUDA, with and without a driver.
TEST(IsSupported, AnswersForDevicesThatDoNotExist) {
  const Inputs in;
  for (const std::int32_t index : {99, 1'000'000, std::numeric_limits<std::int32_t>::max()}) {
    TensorView q = in.q.view();
    TensorView k = in.k.view();
    TensorView v = in.v.view();
    q.device = k.device = v.device = {DeviceType::cuda, index};
    const Support support = is_supported(q, k, v);
    EXPECT_FALSE(support);
    EXPECT_THAT(support.reason, HasSubstr("q, k, v: device cuda:" + std::to_string(index)));
    EXPECT_THAT(support.reason, HasSubstr("expected "));
    const Error error = error_of([&] { (void)prepare(q, k, v); });
    EXPECT_EQ(support.reason, error.what()) << "the call says something else";
  }
}

TEST(IsSupported, AnswersForTheFirstDevice) {
  const Inputs in;
  TensorView q = in.q.view();
  TensorView k = in.k.view();
  TensorView v = in.v.view();
  q.device = k.device = v.device = {DeviceType::cuda, 0};
  const Support support = is_supported(q, k, v);
  const CudaInfo cuda = info().cuda;
  const bool expected = !cuda.devices.empty() && !cuda.devices[0].backend.empty();
  EXPECT_EQ(support.supported, expected) << support.reason;
  EXPECT_EQ(support.reason.empty(), expected);
}

// A view with stride 0 needs little memory, its copy in FP8 more than any machine has.
TEST(OutOfMemory, SaysHowMuchIsNeeded) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end the process where an allocation is too large";
#endif
  const TestTensor one(ElementType::bfloat16, {1, 1, 1, 128});
  TensorView wide = one.view();
  wide.shape = {1, 1 << 24, 1 << 11, 128};
  wide.strides = {0, 0, 0, 1};
  const Error error = error_of([&] { (void)prepare(wide, wide, wide); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  EXPECT_THAT(error.what(), testing::StartsWith("memory: "));
  EXPECT_THAT(error.what(), HasSubstr("; expected "));
  EXPECT_THAT(error.what(), HasSubstr(" TiB for the quantised inputs"));
  EXPECT_THAT(error.what(), HasSubstr("Free memory, or split the call by heads."));
}

TEST(Refusals, SizesBeyondTheLimitsReachTheCaller) {
  const TestTensor one(ElementType::bfloat16, {1, 1, 1, 128});
  TensorView large = one.view();
  large.strides = {0, 0, 0, 1};
  large.shape = {1, std::int64_t{1} << 40, 1, 128};
  TestTensor out(ElementType::bfloat16, {1, 1, 1, 128});
  EXPECT_THAT(error_of([&] { (void)prepare(one.view(), large, large); }).what(),
              HasSubstr("tokens; expected at most"));
  EXPECT_THAT(error_of([&] { attention(one.view(), large, large, out.mutable_view()); }).what(),
              HasSubstr("tokens; expected at most"));
  double value = 0.0;
  EXPECT_THAT(error_of([&] { exact_attention(one.view(), large, large, {}, &value); }).what(),
              HasSubstr("tokens; expected at most"));
  EXPECT_THAT(is_supported(one.view(), large, large).reason, HasSubstr("tokens; expected at most"));
  large.shape = {std::int64_t{1} << 40, 1, 1, 128};
  EXPECT_THAT(error_of([&] { (void)prepare(large, large, large); }).what(),
              HasSubstr("expected batch * heads <="));
  EXPECT_THAT(is_supported(large, large, large).reason, HasSubstr("expected batch * heads <="));
}

TEST(Info, TellsWhatRan) {
  const Inputs in(ElementType::float16, 1, 3, 17, 33);
  TestTensor out = in.out();
  attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view());
  const Info all = info();
  EXPECT_THAT(all.last_dispatch, HasSubstr("cpu on cpu: float16, B 1, H 3, Sq 17, Skv 33"));
  EXPECT_FALSE(all.version.empty());
  EXPECT_GE(all.contract_version, 1);
  EXPECT_EQ(all.backends.front().name, "cpu");
  EXPECT_TRUE(all.backends.front().run_on_hardware);
  EXPECT_FALSE(all.cpu_simd_target.empty());
  EXPECT_THAT(info_json(), HasSubstr("\"last_dispatch\": \"cpu on cpu: float16"));
}

using FiniteCheckDeathTest = testing::Test;

/// The variable is read once, so each case needs a process of its own.
[[noreturn]] void report_and_exit(const Inputs& in, const char* value = "1",
                                  const KeySelection& keys = {}) {
  setenv("OPEN_VC_ATTN_CHECK", value, 1);
  TestTensor out = in.out();
  try {
    AttentionOptions options;
    options.keys = keys;
    attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view(), nullptr, options);
    std::fputs("no error", stderr);
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
  }
  std::exit(0);
}

TEST(FiniteCheckDeathTest, NamesTheFirstNonFiniteTensor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Inputs in;
  EXPECT_EXIT(report_and_exit(in), testing::ExitedWithCode(0), "no error");
  in.v.set(0, 0, 0, 0, std::numeric_limits<float>::infinity());
  in.k.set(1, 7, 1, 99, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EXIT(report_and_exit(in), testing::ExitedWithCode(0),
              "k: element .1, 7, 1, 99. is not finite.*OPEN_VC_ATTN_CHECK=1");
}

TEST(FiniteCheckDeathTest, LooksAtSelectedKeysAndNamesThemByTheirPlaceInTheTensor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Inputs in;
  const auto keys = in.k.view().shape[kSequence];
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(keys), 1);
  for (const std::size_t hidden : {0, 3, 5}) mask[hidden] = 0;
  const KeySelection selection{.mask = mask.data()};
  in.k.set(1, 3, 0, 0, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EXIT(report_and_exit(in, "1", selection), testing::ExitedWithCode(0), "no error");
  in.v.set(1, 7, 1, 99, std::numeric_limits<float>::infinity());
  EXPECT_EXIT(report_and_exit(in, "1", selection), testing::ExitedWithCode(0),
              "v: element .1, 7, 1, 99. is not finite");
  in.q.set(1, 2, 0, 5, std::numeric_limits<float>::infinity());
  EXPECT_EXIT(report_and_exit(in, "1", selection), testing::ExitedWithCode(0),
              "q: element .1, 2, 0, 5. is not finite");
}

TEST(FiniteCheckDeathTest, UnderstandsTheUsualWordsAndRefusesOthers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Inputs in;
  in.q.set(0, 0, 0, 0, std::numeric_limits<float>::infinity());
  for (const char* on : {"1", "true", "ON", "Yes"}) {
    EXPECT_EXIT(report_and_exit(in, on), testing::ExitedWithCode(0), "is not finite") << on;
  }
  for (const char* off : {"", "0", "False", "off", "no"}) {
    EXPECT_EXIT(report_and_exit(in, off), testing::ExitedWithCode(0), "no error") << off;
  }
  for (const char* other : {"2", "01", " 1", "enable"}) {
    EXPECT_EXIT(report_and_exit(in, other), testing::ExitedWithCode(0),
                std::string("OPEN_VC_ATTN_CHECK: '") + other + "'.*expected 1, true")
        << other;
  }
}

}  // namespace
}  // namespace openvc
