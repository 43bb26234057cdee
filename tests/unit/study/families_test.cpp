// SPDX-License-Identifier: BSD-3-Clause
#include "study/families.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "openvc/status.hpp"
#include "study/error_measure.hpp"

namespace openvc::study {
namespace {

constexpr FamilyShape kShape{.batch = 1, .queries = 150, .keys = 200, .heads = 2};
constexpr int kChannels = 128;

float at(const OwnedTensor& tensor, std::int64_t s, std::int64_t h, std::int64_t c) {
  return load_element(tensor.bytes.data(), tensor.type,
                      (s * tensor.shape[kHead] + h) * kChannels + c);
}

/// Logits of one query over all keys, at the default softmax scale.
std::vector<double> logits(const Tensors& in, std::int64_t query, std::int64_t head) {
  std::vector<double> row;
  for (std::int64_t j = 0; j < in.k.shape[kSequence]; ++j) {
    double sum = 0.0;
    for (int c = 0; c < kChannels; ++c) {
      sum += static_cast<double>(at(in.q, query, head, c)) * at(in.k, j, head, c);
    }
    row.push_back(sum / std::sqrt(double{kChannels}));
  }
  return row;
}

std::uint64_t hash(const OwnedTensor& tensor) {
  std::uint64_t value = 0xcbf29ce484222325u;  // FNV-1a
  for (const std::byte byte : tensor.bytes) {
    value = (value ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3u;
  }
  return value;
}

class EveryFamily : public testing::TestWithParam<std::string> {};

TEST_P(EveryFamily, DoesNotDependOnThreads) {
  const Tensors one = generate(GetParam(), kShape, ElementType::bfloat16, 5, 1);
  const Tensors three = generate(GetParam(), kShape, ElementType::bfloat16, 5, 3);
  EXPECT_EQ(one.q.bytes, three.q.bytes);
  EXPECT_EQ(one.k.bytes, three.k.bytes);
  EXPECT_EQ(one.v.bytes, three.v.bytes);
}

TEST_P(EveryFamily, DependsOnTheSeed) {
  const Tensors a = generate(GetParam(), kShape, ElementType::bfloat16, 5);
  const Tensors b = generate(GetParam(), kShape, ElementType::bfloat16, 6);
  EXPECT_NE(a.q.bytes, b.q.bytes);
  EXPECT_NE(a.k.bytes, b.k.bytes);
  EXPECT_NE(a.v.bytes, b.v.bytes);
}

TEST_P(EveryFamily, AHeadStaysWhatItIsWhenOthersAreAdded) {
  FamilyShape alone = kShape;
  alone.heads = 1;
  const Tensors one = generate(GetParam(), alone);
  const Tensors two = generate(GetParam(), kShape);
  for (std::int64_t s = 0; s < kShape.queries; s += 37) {
    for (int c = 0; c < kChannels; c += 5) {
      EXPECT_EQ(at(one.q, s, 0, c), at(two.q, s, 0, c));
      EXPECT_EQ(at(one.k, s, 0, c), at(two.k, s, 0, c));
      EXPECT_EQ(at(one.v, s, 0, c), at(two.v, s, 0, c));
    }
  }
}

TEST_P(EveryFamily, IsFiniteAndNotZeroInEveryElementType) {
  for (const ElementType type :
       {ElementType::bfloat16, ElementType::float16, ElementType::float32}) {
    const Tensors in = generate(GetParam(), kShape, type);
    for (const OwnedTensor* tensor : {&in.q, &in.k, &in.v}) {
      EXPECT_EQ(tensor->type, type);
      const auto count = static_cast<std::int64_t>(tensor->bytes.size() / element_size(type));
      double squares = 0.0;
      for (std::int64_t i = 0; i < count; ++i) {
        const double x = load_element(tensor->bytes.data(), type, i);
        ASSERT_TRUE(std::isfinite(x));
        squares += x * x;
      }
      EXPECT_GT(squares, 0.0);
    }
  }
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.emplace_back(family.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Names, EveryFamily, testing::ValuesIn(all_names()),
                         [](const auto& parameter) { return parameter.param; });

TEST(Families, AreTheSameBytesOnEveryMachine) {
  // Changed only together with a family's definition: published figures name the family.
  const std::map<std::string, std::uint64_t> expected = {
      {"gaussian", 0xc4ab12f4149a7b39u},         {"video_field", 0xc4db49173971558fu},
      {"channel_outliers", 0x5dd3fc4a855a92c6u}, {"v_outlier_tokens", 0xc4ab12f4149a7b39u},
      {"sink_token", 0x53ed7e41baaed762u},       {"near_one_hot", 0x5308db73338db9b0u},
      {"constant_rows", 0xc3fcb2473d76f929u},    {"large_logits", 0xa7d569b97676b29cu},
      {"tiny_values", 0x8aa03495d5d4f175u},      {"huge_values", 0x7adfed80709df4f9u},
  };
  for (const auto& [name, value] : expected) {
    const Tensors in = generate(name, kShape);
    EXPECT_EQ(hash(in.q) ^ hash(in.k) ^ hash(in.v), value) << name;
  }
  EXPECT_EQ(expected.size(), families().size());
}

TEST(Families, UnknownNamesAreRefusedWithTheKnownOnes) {
  try {
    static_cast<void>(generate("gausian", kShape));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_value);
    EXPECT_THAT(error.what(), testing::HasSubstr("'gausian'"));
    EXPECT_THAT(error.what(), testing::HasSubstr("gaussian, video_field"));
  }
}

TEST(Families, EmptyShapesAreRefused) {
  EXPECT_THROW(static_cast<void>(generate("gaussian", {.heads = 0})), Error);
}

TEST(Families, VideoFieldIsSmoothAndLocal) {
  const FamilyShape shape{.batch = 1, .queries = 1'000, .keys = 1'000, .heads = 1};
  const Tensors in = generate("video_field", shape);
  // Values of neighbours resemble each other more than those of distant tokens.
  const auto distance = [&](std::int64_t a, std::int64_t b) {
    double squares = 0.0;
    for (int c = 0; c < kChannels; ++c) {
      squares += std::pow(at(in.v, a, 0, c) - at(in.v, b, 0, c), 2);
    }
    return squares;
  };
  double near = 0.0;
  double far = 0.0;
  for (std::int64_t s = 0; s < 400; s += 9) {
    near += distance(s, s + 1);
    far += distance(s, s + 555);
  }
  EXPECT_LT(near, 0.2 * far);
  // The own position is among the strongest keys.
  for (std::int64_t s = 0; s < 1'000; s += 99) {
    const auto row = logits(in, s, 0);
    const auto stronger =
        std::ranges::count_if(row, [&](double x) { return x > row[static_cast<std::size_t>(s)]; });
    EXPECT_LT(stronger, 30) << s;
  }
}

TEST(Families, ChannelOutliersStandOutAndKeysShareAnOffset) {
  const Tensors in = generate("channel_outliers", kShape);
  const auto deviation = [&](const OwnedTensor& tensor, int channel) {
    double sum = 0.0;
    double squares = 0.0;
    const std::int64_t n = tensor.shape[kSequence];
    for (std::int64_t s = 0; s < n; ++s) {
      sum += at(tensor, s, 0, channel);
      squares += std::pow(at(tensor, s, 0, channel), 2);
    }
    const double mean = sum / static_cast<double>(n);
    return std::pair{std::sqrt(squares / static_cast<double>(n) - mean * mean), mean};
  };
  EXPECT_GT(deviation(in.q, 17).first, 12 * deviation(in.q, 18).first);
  EXPECT_GT(deviation(in.k, 45).first, 12 * deviation(in.k, 46).first);
  double means = 0.0;
  for (int c = 0; c < kChannels; ++c) means += std::abs(deviation(in.k, c).second) / kChannels;
  EXPECT_GT(means, 3.0);
}

TEST(Families, ValueOutliersAreFew) {
  const FamilyShape shape{.batch = 1, .queries = 1, .keys = 4'000, .heads = 1};
  const Tensors in = generate("v_outlier_tokens", shape);
  int outliers = 0;
  for (std::int64_t s = 0; s < shape.keys; ++s) {
    double squares = 0.0;
    for (int c = 0; c < kChannels; ++c) squares += std::pow(at(in.v, s, 0, c), 2);
    if (squares > 100.0 * kChannels) ++outliers;
  }
  EXPECT_GT(outliers, 8);
  EXPECT_LT(outliers, 40);
}

TEST(Families, TheSinkTokenTakesMostOfTheAttention) {
  const Tensors in = generate("sink_token", kShape);
  double share = 0.0;
  for (std::int64_t query = 0; query < kShape.queries; ++query) {
    double rest = 0.0;
    const auto row = logits(in, query, 1);
    for (std::size_t j = 1; j < row.size(); ++j) rest += std::exp(row[j] - row[0]);
    share += 1.0 / (1.0 + rest) / static_cast<double>(kShape.queries);
  }
  EXPECT_GT(share, 0.7);
  EXPECT_LT(share, 0.999);
}

TEST(Families, NearOneHotLogitsSpreadOverAboutThirtyNats) {
  const FamilyShape shape{.batch = 1, .queries = 20, .keys = 4'000, .heads = 1};
  const Tensors in = generate("near_one_hot", shape);
  for (std::int64_t query = 0; query < shape.queries; ++query) {
    const auto row = logits(in, query, 0);
    EXPECT_NEAR(std::ranges::max(row), 30.0, 9.0);
  }
}

TEST(Families, LargeLogitsReachHundredsOfNatsBothWays) {
  const auto row = logits(generate("large_logits", kShape), 0, 0);
  EXPECT_GT(std::ranges::max(row), 200.0);
  EXPECT_LT(std::ranges::min(row), -200.0);
}

TEST(Families, ConstantRowsAreEqual) {
  const Tensors in = generate("constant_rows", kShape);
  for (const OwnedTensor* tensor : {&in.q, &in.k, &in.v}) {
    for (std::int64_t s = 1; s < tensor->shape[kSequence]; ++s) {
      for (int c = 0; c < kChannels; ++c) EXPECT_EQ(at(*tensor, s, 1, c), at(*tensor, 0, 1, c));
    }
  }
}

TEST(Families, ExtremesComeCloseToTheLimitsOfTheType) {
  const auto largest = [](const OwnedTensor& tensor) {
    float value = 0.0f;
    const auto count = static_cast<std::int64_t>(tensor.bytes.size() / element_size(tensor.type));
    for (std::int64_t i = 0; i < count; ++i) {
      value = std::max(value, std::abs(load_element(tensor.bytes.data(), tensor.type, i)));
    }
    return value;
  };
  EXPECT_GT(largest(generate("huge_values", kShape, ElementType::float16).v), 20'000.0f);
  EXPECT_GT(largest(generate("huge_values", kShape).v), 1e36f);
  EXPECT_LT(largest(generate("tiny_values", kShape, ElementType::float16).v), 1e-5f);
  EXPECT_LT(largest(generate("tiny_values", kShape).v), 1e-30f);
}

}  // namespace
}  // namespace openvc::study
