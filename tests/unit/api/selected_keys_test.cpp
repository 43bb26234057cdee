// SPDX-License-Identifier: BSD-3-Clause
//
// Attention over a selection of keys: the others do not exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "openvc/attention.hpp"
#include "unit/cpu/test_tensor.hpp"

namespace openvc {
namespace {

using test::Random;
using test::Shape;
using test::TestTensor;
using testing::HasSubstr;

constexpr std::int64_t kBatchSize = 3;
constexpr std::int64_t kHeads = 2;
constexpr std::int64_t kQueries = 70;
constexpr std::int64_t kKeys = 400;
constexpr std::int64_t kDim = 64;

struct Inputs {
  explicit Inputs(std::int64_t batch = kBatchSize, std::int64_t keys = kKeys)
      : q(ElementType::bfloat16, {batch, kQueries, kHeads, kDim}),
        k(ElementType::bfloat16, {batch, keys, kHeads, kDim}),
        v(ElementType::bfloat16, {batch, keys, kHeads, kDim}) {
    q.fill_normal(1);
    k.fill_normal(2);
    v.fill_normal(3);
  }

  struct Result {
    TestTensor out;
    std::vector<float> logs;
  };
  [[nodiscard]] Result attend(const KeySelection& keys = {}) const {
    const Shape shape = q.view().shape;
    Result result{TestTensor(ElementType::bfloat16, shape),
                  std::vector<float>(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]))};
    AttentionOptions options;
    options.keys = keys;
    attention(q.view(), k.view(), v.view(), result.out.mutable_view(), result.logs.data(), options);
    EXPECT_TRUE(result.out.surroundings_untouched());
    return result;
  }

  TestTensor q;
  TestTensor k;
  TestTensor v;
};

/// A mask [batch, keys] in which a share of the keys takes part.
std::vector<std::uint8_t> random_mask(std::uint64_t seed, double share) {
  Random random(seed);
  std::vector<std::uint8_t> mask(kBatchSize * kKeys);
  for (std::uint8_t& byte : mask) {
    const bool selected = static_cast<double>(random.next() >> 11) * 0x1p-53 < share;
    byte = static_cast<std::uint8_t>(selected ? 1 + random.next() % 255 : 0);
  }
  return mask;
}

/// Compares sequence `b` with a call on the keys that `takes_part` names.
template <class TakesPart>
void expect_call_without_others(const Inputs& in, const Inputs::Result& found, std::int64_t b,
                                const TakesPart& takes_part) {
  std::vector<std::int64_t> keys;
  for (std::int64_t key = 0; key < kKeys; ++key) {
    if (takes_part(key)) keys.push_back(key);
  }
  const std::size_t rows = kHeads * kQueries;
  const std::vector<float> logs(
      found.logs.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(b) * rows),
      found.logs.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(b + 1) * rows));
  if (keys.empty()) {
    EXPECT_EQ(logs, std::vector<float>(rows, -std::numeric_limits<float>::infinity()));
    found.out.for_each([&](auto batch, auto s, auto h, auto c) {
      ASSERT_TRUE(batch != b || found.out.get(b, s, h, c) == 0.0f);
    });
    return;
  }
  Inputs one(1, static_cast<std::int64_t>(keys.size()));
  const auto key = [&](std::int64_t s) { return keys[static_cast<std::size_t>(s)]; };
  one.q.fill([&](auto, auto s, auto h, auto c) { return in.q.get(b, s, h, c); });
  one.k.fill([&](auto, auto s, auto h, auto c) { return in.k.get(b, key(s), h, c); });
  one.v.fill([&](auto, auto s, auto h, auto c) { return in.v.get(b, key(s), h, c); });
  const Inputs::Result expected = one.attend();
  EXPECT_EQ(logs, expected.logs) << b;
  expected.out.for_each([&](auto, auto s, auto h, auto c) {
    ASSERT_EQ(found.out.get(b, s, h, c), expected.out.get(0, s, h, c)) << b;
  });
}

TEST(SelectedKeys, LengthsEqualShorterSequences) {
  Inputs in;
  const std::vector<std::int32_t> lengths = {257, 1, 400};
  in.k.fill([&](auto b, auto s, auto h, auto c) {
    return s < lengths[static_cast<std::size_t>(b)] ? in.k.get(b, s, h, c)
                                                    : std::numeric_limits<float>::quiet_NaN();
  });
  const Inputs::Result found = in.attend({.lengths = lengths.data()});
  for (std::int64_t b = 0; b < kBatchSize; ++b) {
    expect_call_without_others(
        in, found, b, [&](std::int64_t key) { return key < lengths[static_cast<std::size_t>(b)]; });
  }
}

TEST(SelectedKeys, MasksEqualCallsWithoutTheOtherKeys) {
  for (const double share : {0.02, 0.5, 0.97}) {
    Inputs in;
    const std::vector<std::uint8_t> mask = random_mask(11, share);
    const auto takes_part = [&](std::int64_t b, std::int64_t key) {
      return mask[static_cast<std::size_t>(b * kKeys + key)] != 0;
    };
    in.v.fill([&](auto b, auto s, auto h, auto c) {
      return takes_part(b, s) ? in.v.get(b, s, h, c) : std::numeric_limits<float>::infinity();
    });
    const Inputs::Result found = in.attend({.mask = mask.data(), .mask_batch_stride = kKeys});
    for (std::int64_t b = 0; b < kBatchSize; ++b) {
      expect_call_without_others(in, found, b,
                                 [&](std::int64_t key) { return takes_part(b, key); });
    }
  }
}

TEST(SelectedKeys, LengthsAndMaskTogetherAndStridesOfMasks) {
  const Inputs in;
  const std::vector<std::uint8_t> mask = random_mask(12, 0.5);  // read from its end, one for all
  const std::vector<std::int32_t> lengths = {300, -5, 1'000};   // clamped
  const KeySelection keys{.lengths = lengths.data(),
                          .mask = mask.data() + kKeys - 1,
                          .mask_batch_stride = 0,
                          .mask_key_stride = -1};
  const Inputs::Result found = in.attend(keys);
  for (std::int64_t b = 0; b < kBatchSize; ++b) {
    expect_call_without_others(in, found, b, [&](std::int64_t key) {
      return key < lengths[static_cast<std::size_t>(b)] &&
             mask[static_cast<std::size_t>(kKeys - 1 - key)] != 0;
    });
  }
}

TEST(SelectedKeys, RefusesWhatItCannotHonour) {
  const Inputs in;
  const std::vector<std::int32_t> lengths(kBatchSize, 10);
  AttentionOptions options;
  options.keys.lengths = lengths.data();
  try {
    (void)prepare(in.q.view(), in.k.view(), in.v.view(), options);
    ADD_FAILURE() << "prepare() accepted a selection";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("key_lengths: selects keys; expected none"));
  }
  options.mask = Mask::causal;
  const Support support = is_supported(in.q.view(), in.k.view(), in.v.view(), options);
  EXPECT_FALSE(support);
  EXPECT_THAT(support.reason, HasSubstr("key_lengths: together with a causal mask"));
  options.mask = Mask::none;
  EXPECT_TRUE(is_supported(in.q.view(), in.k.view(), in.v.view(), options));
  options.keys.lengths =
      reinterpret_cast<const std::int32_t*>(reinterpret_cast<const char*>(lengths.data()) + 2);
  EXPECT_THAT(is_supported(in.q.view(), in.k.view(), in.v.view(), options).reason,
              HasSubstr("key_lengths: pointer is not a multiple of 4"));
}

}  // namespace
}  // namespace openvc
