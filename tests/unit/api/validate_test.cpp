// SPDX-License-Identifier: BSD-3-Clause
#include "api/validate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "api/describe.hpp"
#include "openvc/attention.hpp"
#include "schedule/limits.hpp"

namespace openvc::api {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

/// Views without memory behind them: validation must not look at elements.
TensorView tensor(std::array<std::int64_t, 4> shape, std::uintptr_t address = 0x1000) {
  TensorView view;
  view.data = reinterpret_cast<const void*>(address);
  view.shape = shape;
  view.strides = contiguous_strides(shape);
  return view;
}

MutableTensorView output(std::array<std::int64_t, 4> shape, std::uintptr_t address = 0x9000'0000) {
  const TensorView view = tensor(shape, address);
  return {const_cast<void*>(view.data), view.type, view.device, view.shape, view.strides};
}

void expect_refusal(const MaybeRefusal& refusal, ErrorCode code,
                    const std::vector<std::string>& parts) {
  ASSERT_TRUE(refusal.has_value()) << "expected a refusal with: " << parts.front();
  EXPECT_EQ(refusal->code, code) << refusal->message;
  EXPECT_THAT(refusal->message, StartsWith(parts.front()));
  for (const std::string& part : parts) EXPECT_THAT(refusal->message, HasSubstr(part));
  EXPECT_THAT(refusal->message, AllOf(HasSubstr("expected "), testing::EndsWith(".")));
}

struct Qkv {
  TensorView q = tensor({2, 100, 4, 128}, 0x10'0000);
  TensorView k = tensor({2, 200, 4, 128}, 0x20'0000);
  TensorView v = tensor({2, 200, 4, 128}, 0x80'0000);
};

template <class Change>
MaybeRefusal inputs_with(const Change& change) {
  Qkv t;
  change(t);
  return validate_inputs(t.q, t.k, t.v);
}

TEST(ValidateInputs, AcceptsWhatTheContractAllows) {
  EXPECT_FALSE(inputs_with([](Qkv&) {}));
  EXPECT_FALSE(inputs_with([](Qkv& t) { t.q.type = t.k.type = t.v.type = ElementType::float32; }));
  EXPECT_FALSE(inputs_with([](Qkv& t) { t.k.strides = {0, 0, 0, 1}; })) << "expanded";
  EXPECT_FALSE(inputs_with([](Qkv& t) { t.v.strides = {-1, -7, 131, 1}; })) << "odd, negative";
  EXPECT_FALSE(inputs_with([](Qkv& t) {
    t.q = tensor({1, 1, 1, 128});
    t.k = t.v = tensor({1, 1, 1, 128});
    t.k.strides = {kMax, -kMax, 3, 1};
  })) << "strides of singleton axes";
  EXPECT_FALSE(inputs_with([](Qkv& t) {
    t.q = t.k = t.v = tensor({1, 200'064, 56, 128});
    t.v.strides = {std::int64_t{200'064} * 21'504, 21'504, 128, 1};
  })) << "a span beyond 2^32 elements";
  EXPECT_FALSE(inputs_with([](Qkv& t) { t.q.data = reinterpret_cast<const void*>(0x1002); }))
      << "2-byte alignment";
  EXPECT_FALSE(inputs_with([](Qkv& t) {
    t.q.device.index = 3;  // means nothing for the CPU
  }));
}

TEST(ValidateInputs, RefusesZeroSizes) {
  expect_refusal(inputs_with([](Qkv& t) { t.q.shape[kSequence] = 0; }), ErrorCode::invalid_value,
                 {"q: shape [2, 0, 4, 128]", "axis of size 0", "Skip the call"});
  expect_refusal(inputs_with([](Qkv& t) { t.k.shape[kBatch] = 0; }), ErrorCode::invalid_value,
                 {"k: shape [0, 200, 4, 128]"});
  expect_refusal(inputs_with([](Qkv& t) { t.v.shape[kHead] = -1; }), ErrorCode::invalid_value,
                 {"v: shape [2, 200, -1, 128]", "axis of size -1"});
}

TEST(ValidateInputs, AcceptsHeadSizesThatAreMultiplesOfEight) {
  for (const std::int64_t channels : {8, 16, 64, 72, 120}) {
    EXPECT_FALSE(inputs_with([&](Qkv& t) {
      t.q.shape[kChannel] = t.k.shape[kChannel] = t.v.shape[kChannel] = channels;
    }));
  }
}

TEST(ValidateInputs, RefusesOtherHeadSizes) {
  expect_refusal(inputs_with([](Qkv& t) { t.q.shape[kChannel] = 68; }), ErrorCode::unsupported,
                 {"q: shape [2, 100, 4, 68] has D = 68", "expected a multiple of 8 up to 128",
                  "Pad the channels"});
  expect_refusal(inputs_with([](Qkv& t) { t.k.shape[kChannel] = 256; }), ErrorCode::unsupported,
                 {"k: shape [2, 200, 4, 256] has D = 256", "another attention function"});
}

TEST(ValidateInputs, NamesTheLayoutWhenHeadsAndSequenceAreSwapped) {
  expect_refusal(inputs_with([](Qkv& t) {
                   t.q = tensor({1, 56, 75'600, 128});
                   t.k = t.v = tensor({1, 56, 1'000, 128});
                 }),
                 ErrorCode::invalid_value,
                 {"k: shape [1, 56, 1000, 128] has 1000 heads and q has 75600",
                  "[batch, sequence, head, channel]"});
}

TEST(ValidateInputs, HeadsOfKeysDivideThoseOfQueries) {
  EXPECT_FALSE(inputs_with([](Qkv& t) { t.k.shape[kHead] = t.v.shape[kHead] = 2; }));
  EXPECT_FALSE(inputs_with([](Qkv& t) { t.k.shape[kHead] = t.v.shape[kHead] = 1; }));
  for (const std::int64_t heads : {3, 8}) {
    expect_refusal(
        inputs_with([&](Qkv& t) { t.k.shape[kHead] = t.v.shape[kHead] = heads; }),
        ErrorCode::invalid_value,
        {"k: shape [2, 200, " + std::to_string(heads) + ", 128] has", "heads and q has 4",
         "expected a number that divides q's", "Repeat or drop heads"});
  }
}

TEST(ValidateInputs, RefusesShapesThatDoNotFit) {
  expect_refusal(inputs_with([](Qkv& t) { t.v.shape[kSequence] = 201; }), ErrorCode::invalid_value,
                 {"v: shape [2, 201, 4, 128] differs from k's [2, 200, 4, 128]"});
  expect_refusal(inputs_with([](Qkv& t) { t.q.shape[kBatch] = 1; }), ErrorCode::invalid_value,
                 {"k: shape [2, 200, 4, 128] has batch 2; expected q's, 1", "Expand the batch"});
}

TEST(ValidateInputs, RefusesMixedTypes) {
  expect_refusal(inputs_with([](Qkv& t) { t.k.type = ElementType::float32; }),
                 ErrorCode::invalid_type,
                 {"q, k, v: element types bfloat16, float32, bfloat16 differ", "Convert"});
  expect_refusal(inputs_with([](Qkv& t) { t.v.type = static_cast<ElementType>(9); }),
                 ErrorCode::invalid_type, {"v: element type 9 is unknown"});
}

TEST(ValidateInputs, RefusesMixedDevices) {
  expect_refusal(inputs_with([](Qkv& t) {
                   t.k.device = {DeviceType::cuda, 1};
                 }),
                 ErrorCode::invalid_value, {"q, k, v: devices cpu, cuda:1, cpu differ", "Move"});
  expect_refusal(inputs_with([](Qkv& t) {
                   t.q.device = t.k.device = {DeviceType::cuda, 0};
                   t.v.device = {DeviceType::cuda, 1};
                 }),
                 ErrorCode::invalid_value, {"q, k, v: devices cuda:0, cuda:0, cuda:1 differ"});
  expect_refusal(inputs_with([](Qkv& t) {
                   t.q.device = {static_cast<DeviceType>(7), 0};
                 }),
                 ErrorCode::invalid_value, {"q: device type 7"});
  expect_refusal(inputs_with([](Qkv& t) {
                   t.q.device = {DeviceType::cuda, -1};
                 }),
                 ErrorCode::invalid_value, {"q: device type 1, index -1"});
}

template <class Change>
MaybeRefusal pointers_with(const Change& change) {
  Qkv t;
  change(t);
  EXPECT_FALSE(validate_inputs(t.q, t.k, t.v)) << "pointers are not part of a shape";
  return validate_pointers(t.q, t.k, t.v);
}

TEST(ValidatePointers, RefusesWhatCannotBeRead) {
  EXPECT_FALSE(pointers_with([](Qkv&) {}));
  expect_refusal(pointers_with([](Qkv& t) { t.q.data = nullptr; }), ErrorCode::invalid_value,
                 {"q: data pointer is null"});
  expect_refusal(pointers_with([](Qkv& t) { t.k.data = nullptr; }), ErrorCode::invalid_value,
                 {"k: data pointer is null"});
  expect_refusal(pointers_with([](Qkv& t) { t.v.data = nullptr; }), ErrorCode::invalid_value,
                 {"v: data pointer is null"});
  expect_refusal(pointers_with([](Qkv& t) { t.q.data = reinterpret_cast<const void*>(0x1001); }),
                 ErrorCode::invalid_value, {"q: data pointer is not a multiple", "2-byte"});
  expect_refusal(pointers_with([](Qkv& t) {
                   t.q.type = t.k.type = t.v.type = ElementType::float32;
                   t.k.data = reinterpret_cast<const void*>(0x1002);
                 }),
                 ErrorCode::invalid_value, {"k: data pointer is not a multiple", "4-byte"});
}

// Views with stride 0 describe more than any memory holds.
TEST(ValidateInputs, LimitsTokens) {
  const auto set_tokens = [](TensorView& tensor, std::int64_t tokens) {
    tensor.shape[kSequence] = tokens;
    tensor.strides[kSequence] = 0;
  };
  constexpr std::int64_t kMost = schedule::kMaxTokens;
  EXPECT_FALSE(inputs_with([&](Qkv& t) { set_tokens(t.q, kMost); }));
  EXPECT_FALSE(inputs_with([&](Qkv& t) {
    set_tokens(t.k, kMost);
    set_tokens(t.v, kMost);
  }));
  for (const std::int64_t tokens : {kMost + 1, std::int64_t{1} << 32, kMax}) {
    const std::string found =
        "has " + std::to_string(tokens) + " tokens; expected at most 134217727";
    expect_refusal(inputs_with([&](Qkv& t) { set_tokens(t.q, tokens); }), ErrorCode::unsupported,
                   {"q: shape [2, ", found, "Split the queries"});
    expect_refusal(inputs_with([&](Qkv& t) {
                     set_tokens(t.k, tokens);
                     set_tokens(t.v, tokens);
                   }),
                   ErrorCode::unsupported, {"k: shape [2, ", found, "another attention"});
  }
}

TEST(ValidateInputs, LimitsTheRowsOfAllHeads) {
  const auto set = [](Qkv& t, Axis axis, std::int64_t size) {
    for (TensorView* tensor : {&t.q, &t.k, &t.v}) {
      tensor->shape[axis] = size;
      tensor->strides[axis] = 0;
    }
  };
  // 256 padded queries and 256 padded keys per head; 2 and 4 of the other axis.
  constexpr std::int64_t kMost = schedule::kMaxRows / (256 + 256);
  EXPECT_FALSE(inputs_with([&](Qkv& t) { set(t, kBatch, kMost / 4); }));
  EXPECT_FALSE(inputs_with([&](Qkv& t) { set(t, kHead, kMost / 2); }));
  for (const std::int64_t size : {kMost, std::int64_t{1} << 40, kMax}) {
    const std::string limit = "expected batch * heads <= " + std::to_string(kMost);
    expect_refusal(inputs_with([&](Qkv& t) { set(t, kBatch, size); }), ErrorCode::unsupported,
                   {"q, k: batch " + std::to_string(size) + " and 4 heads", limit, "Split"});
    expect_refusal(inputs_with([&](Qkv& t) { set(t, kHead, size); }), ErrorCode::unsupported,
                   {"q, k: batch 2 and " + std::to_string(size) + " heads", limit, "Split"});
  }
  // Each axis is small, the product is not.
  expect_refusal(inputs_with([&](Qkv& t) {
                   set(t, kBatch, 1 << 16);
                   set(t, kHead, 1 << 16);
                   set(t, kSequence, 1 << 16);
                 }),
                 ErrorCode::unsupported, {"q, k: batch 65536 and 65536 heads with 65536 queries"});
}

TEST(ValidateInputs, LimitsTheChannelsOfExactAttention) {
  for (const std::int64_t channels : {schedule::kMaxExactChannels + 1, std::int64_t{1} << 40}) {
    Qkv t;
    for (TensorView* tensor : {&t.q, &t.k, &t.v}) {
      tensor->shape[kChannel] = channels;
      tensor->strides = {0, 0, 0, 1};
    }
    expect_refusal(validate_inputs(t.q, t.k, t.v, true), ErrorCode::unsupported,
                   {"q: shape", "has D = " + std::to_string(channels), "expected D <= 65536"});
  }
}

TEST(ValidateInputs, RefusesStrides) {
  expect_refusal(inputs_with([](Qkv& t) {
                   t.k.strides = {102'400, 512, 1, 4};
                 }),
                 ErrorCode::invalid_value,
                 {"k: strides [102400, 512, 1, 4] have channel stride 4", "Make the tensor"});
  for (const std::int64_t stride : {kMax, kMax / 2, -kMax / 3, kMax / 300}) {
    expect_refusal(inputs_with([stride](Qkv& t) { t.v.strides[kSequence] = stride; }),
                   ErrorCode::invalid_value, {"v: shape", "spans more than 2^63 bytes"});
  }
}

template <class Change>
MaybeRefusal options_with(const Change& change) {
  AttentionOptions options;
  change(options);
  return validate_options(options);
}

TEST(ValidateOptions, AcceptsTheDefaults) {
  EXPECT_FALSE(options_with([](AttentionOptions&) {}));
}

TEST(ValidateOptions, RefusesScales) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const float scale : {0.0f, -1.0f, inf, -inf, nan}) {
    expect_refusal(options_with([&](AttentionOptions& o) { o.softmax_scale = scale; }),
                   ErrorCode::invalid_value, {"softmax_scale: ", "finite number > 0"});
  }
}

TEST(ValidateOptions, RefusesScalesWhoseGainLosesDigits) {
  const auto with_scale = [](float scale) {
    return options_with([&](AttentionOptions& o) { o.softmax_scale = scale; });
  };
  const float below = std::nextafter(kSmallestSoftmaxScale, 0.0f);
  const float above = std::nextafter(kLargestSoftmaxScale, 1e38f);
  for (const float scale : {0x1p-149f, 1e-44f, 1e-40f, below, above, 2.95e37f, 3.4e38f}) {
    expect_refusal(with_scale(scale), ErrorCode::invalid_value,
                   {"softmax_scale: ", kSoftmaxScaleRange, "single precision"});
  }
  for (const float scale : {kSmallestSoftmaxScale, 1e-37f, 1.0f, 2e37f, kLargestSoftmaxScale}) {
    EXPECT_FALSE(with_scale(scale)) << scale;
  }
}

TEST(ValidateOptions, RefusesUnknownEnumerators) {
  expect_refusal(options_with([](AttentionOptions& o) { o.mask = static_cast<Mask>(2); }),
                 ErrorCode::invalid_value, {"mask: 2 is unknown", "causal (1)"});
  expect_refusal(options_with([](AttentionOptions& o) { o.key_order = static_cast<KeyOrder>(5); }),
                 ErrorCode::invalid_value, {"key_order: 5 is unknown"});
}

TEST(ValidateOptions, SaysWhatNumericsAllow) {
  expect_refusal(options_with([](AttentionOptions& o) { o.numerics.max_extra_steps = 3; }),
                 ErrorCode::invalid_value, {"max_extra_steps: 3; expected 0, 1, 2 or 4."});
  expect_refusal(options_with([](AttentionOptions& o) { o.numerics.score_error_target = -0.5f; }),
                 ErrorCode::invalid_value, {"score_error_target: -0.5; ", "finite number >= 0"});
  expect_refusal(
      options_with([](AttentionOptions& o) { o.numerics.rotation = static_cast<Choice>(3); }),
      ErrorCode::invalid_value, {"rotation: 3; expected never (0), automatic (1) or always (2)."});
}

TEST(ValidateRepair, TakesSharesOnly) {
  EXPECT_FALSE(validate_repair(0.0, {}));
  EXPECT_FALSE(validate_repair(0.999, {}));
  const double inf = std::numeric_limits<double>::infinity();
  for (const double budget : {-1e-9, 1.0, 2.0, inf, -inf, std::nan("")}) {
    expect_refusal(validate_repair(budget, {}), ErrorCode::invalid_value,
                   {"budget: ", "0 <= budget < 1"});
  }
  AttentionOptions causal;
  causal.mask = Mask::causal;
  EXPECT_FALSE(validate_repair(0.0, causal));
  expect_refusal(validate_repair(0.1, causal), ErrorCode::unsupported,
                 {"budget: 0.1", "causal mask"});
}

TEST(ValidateExecution, RefusesThreadsOutOfRange) {
  EXPECT_FALSE(validate_execution({}));
  expect_refusal(validate_execution({.threads = -2}), ErrorCode::invalid_value, {"threads: -2"});
  EXPECT_FALSE(validate_execution({.threads = kMaxThreads}));
  expect_refusal(validate_execution({.threads = kMaxThreads + 1}), ErrorCode::invalid_value,
                 {"threads: 4097", "4096"});
}

TEST(ValidateRows, RefusesRowsThatDoNotExist) {
  const std::int64_t good[] = {0, 99, 5, 5};
  const std::int64_t beyond[] = {0, 100};
  const std::int64_t negative[] = {-1};
  EXPECT_FALSE(validate_rows(good, 100));
  expect_refusal(validate_rows(beyond, 100), ErrorCode::invalid_value, {"rows: 100", "< 100"});
  expect_refusal(validate_rows(negative, 100), ErrorCode::invalid_value, {"rows: -1"});
}

constexpr std::array<std::int64_t, 4> kShape{2, 100, 4, 128};

MaybeRefusal output_with(const MutableTensorView& out) {
  return validate_output(out, kShape, ElementType::bfloat16, {});
}

TEST(ValidateOutput, AcceptsAnyLayoutWithoutCollisions) {
  MutableTensorView out = output(kShape);
  EXPECT_FALSE(output_with(out));
  out.strides = {4 * 100 * 128, 128, 100 * 128, 1};
  EXPECT_FALSE(output_with(out)) << "heads before sequence";
  out.strides = {100 * 1536, 1536, 128, 1};
  EXPECT_FALSE(output_with(out)) << "slice of a wider tensor";
  out.strides = {-100 * 512, -512, -128, 1};
  EXPECT_FALSE(output_with(out)) << "negative";
}

TEST(ValidateOutput, RefusesWhatIsNotTheOutput) {
  expect_refusal(output_with(output({2, 101, 4, 128})), ErrorCode::invalid_value,
                 {"out: shape [2, 101, 4, 128]", "q's shape [2, 100, 4, 128]"});
  MutableTensorView out = output(kShape);
  out.type = ElementType::float16;
  expect_refusal(output_with(out), ErrorCode::invalid_type,
                 {"out: element type float16", "expected bfloat16"});
  out = output(kShape);
  out.device = {DeviceType::cuda, 0};
  expect_refusal(output_with(out), ErrorCode::invalid_value, {"out: device cuda:0"});
  out = output(kShape);
  out.data = nullptr;
  expect_refusal(output_with(out), ErrorCode::invalid_value, {"out: data pointer is null"});
}

TEST(ValidateOutput, RefusesCollidingWrites) {
  for (const std::array<std::int64_t, 4>& strides : {std::array<std::int64_t, 4>{0, 512, 128, 1},
                                                     {51'200, 0, 128, 1},
                                                     {51'200, 512, 0, 1},
                                                     {51'200, 512, 127, 1},
                                                     {51'200, 511, 128, 1},
                                                     {128, 128, 25'600, 1}}) {
    MutableTensorView out = output(kShape);
    out.strides = strides;
    expect_refusal(output_with(out), ErrorCode::invalid_value,
                   {"out: strides " + describe(strides), "share addresses"});
  }
}

TEST(ValidateNoOverlap, ComparesAddressRanges) {
  const TensorView q = tensor(kShape, 0x10'0000);
  const std::int64_t bytes = 2 * 100 * 4 * 128 * 2;
  const NamedTensor inputs[] = {{"q", q}};
  const auto at = [&](std::int64_t offset) {
    return output(kShape, static_cast<std::uintptr_t>(0x10'0000 + offset));
  };
  EXPECT_FALSE(validate_no_overlap(at(bytes), nullptr, 0, inputs)) << "just behind";
  EXPECT_FALSE(validate_no_overlap(at(-bytes), nullptr, 0, inputs)) << "just before";
  for (const std::int64_t offset : {std::int64_t{0}, bytes - 2, 2 - bytes}) {
    expect_refusal(validate_no_overlap(at(offset), nullptr, 0, inputs), ErrorCode::invalid_value,
                   {"out: memory overlaps q"});
  }
  MutableTensorView reversed = at(2 * bytes - 256);
  reversed.strides = {-100 * 512, -512, -128, 1};
  EXPECT_FALSE(validate_no_overlap(reversed, nullptr, 0, inputs));
  reversed.data = reinterpret_cast<void*>(0x10'0000 + 2 * bytes - 258);
  EXPECT_TRUE(validate_no_overlap(reversed, nullptr, 0, inputs));
}

TEST(ValidateNoOverlap, LogSumExp) {
  const TensorView q = tensor(kShape, 0x10'0000);
  const NamedTensor inputs[] = {{"q", q}};
  const MutableTensorView out = output(kShape);
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<const float*>(address); };
  EXPECT_FALSE(validate_no_overlap(out, at(0x100), 800, inputs));
  expect_refusal(validate_no_overlap(out, at(0x10'0000), 800, inputs), ErrorCode::invalid_value,
                 {"log_sum_exp: memory overlaps q"});
  expect_refusal(validate_no_overlap(out, at(0x9000'0000 - 3196), 800, inputs),
                 ErrorCode::invalid_value, {"log_sum_exp: memory overlaps out"});
  EXPECT_FALSE(validate_no_overlap(out, at(0x9000'0000 - 3200), 800, inputs));
  expect_refusal(validate_no_overlap(out, at(0x102), 800, inputs), ErrorCode::invalid_value,
                 {"log_sum_exp: pointer is not a multiple of 4"});
}

TEST(Require, ThrowsTheRefusal) {
  EXPECT_NO_THROW(require({}));
  try {
    require(Refusal{ErrorCode::unsupported, "why"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_STREQ(error.what(), "why");
  }
}

}  // namespace
}  // namespace openvc::api
