// SPDX-License-Identifier: BSD-3-Clause
//
// Packed sequences: each is a call of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "openvc/attention.hpp"
#include "unit/cpu/test_tensor.hpp"

namespace openvc {
namespace {

using test::Shape;
using test::TestTensor;
using testing::HasSubstr;

using Boundaries = std::vector<std::int32_t>;

constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kKeyHeads = 2;
constexpr std::int64_t kDim = 32;

/// Of sequences that follow each other, with two rows of padding behind the last.
struct Packed {
  Boundaries of_q;
  Boundaries of_k;
  TestTensor q;
  TestTensor k;
  TestTensor v;
  TestTensor out;
  std::vector<float> logs;

  Packed(Boundaries queries, Boundaries keys)
      : of_q(std::move(queries)),
        of_k(std::move(keys)),
        q(ElementType::bfloat16, {1, of_q.back() + 2, kHeads, kDim}),
        k(ElementType::bfloat16, {1, of_k.back() + 2, kKeyHeads, kDim}),
        v(ElementType::bfloat16, k.view().shape),
        out(ElementType::bfloat16, q.view().shape),
        logs(static_cast<std::size_t>(kHeads * (of_q.back() + 2)), 7.0f) {
    q.fill_normal(1);
    k.fill_normal(2);
    v.fill_normal(3);
    out.fill([](auto, auto, auto, auto) { return 7.0f; });
  }

  [[nodiscard]] AttentionOptions options() const {
    AttentionOptions result;
    result.sequences = {.count = static_cast<std::int64_t>(of_q.size()) - 1,
                        .cu_seqlens_q = of_q.data(),
                        .cu_seqlens_k = of_k.data(),
                        .max_seqlen_q = of_q.back(),
                        .max_seqlen_k = of_k.back()};
    return result;
  }

  void attend(const AttentionOptions& with) {
    attention(q.view(), k.view(), v.view(), out.mutable_view(), logs.data(), with);
    EXPECT_TRUE(out.surroundings_untouched());
  }

  [[nodiscard]] std::string refusal(const AttentionOptions& with) {
    try {
      attend(with);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  [[nodiscard]] float log(std::int64_t h, std::int64_t query) const {
    return logs[static_cast<std::size_t>(h * q.view().shape[kSequence] + query)];
  }
};

/// Tokens [first, first + count) of a tensor, as one of its own.
TestTensor part(const TestTensor& of, std::int64_t first, std::int64_t count) {
  Shape shape = of.view().shape;
  shape[kSequence] = count;
  TestTensor result(ElementType::bfloat16, shape);
  result.fill([&](auto, auto s, auto h, auto c) { return of.get(0, first + s, h, c); });
  return result;
}

/// Compares every sequence with a call of its own, and the padding with what it was.
void expect_calls_of_their_own(const Packed& packed, const AttentionOptions& options) {
  AttentionOptions alone = options;
  alone.sequences = {};
  for (std::size_t b = 0; b + 1 < packed.of_q.size(); ++b) {
    const std::int64_t first = packed.of_q[b];
    const std::int64_t queries = packed.of_q[b + 1] - first;
    const std::int64_t keys = packed.of_k[b + 1] - packed.of_k[b];
    if (queries == 0) continue;
    std::vector<float> logs(static_cast<std::size_t>(kHeads * queries),
                            -std::numeric_limits<float>::infinity());
    TestTensor out = part(packed.out, first, queries);
    out.fill([](auto, auto, auto, auto) { return 0.0f; });
    if (keys > 0) {
      attention(part(packed.q, first, queries).view(), part(packed.k, packed.of_k[b], keys).view(),
                part(packed.v, packed.of_k[b], keys).view(), out.mutable_view(), logs.data(),
                alone);
    }
    out.for_each([&](auto, auto s, auto h, auto c) {
      ASSERT_EQ(packed.out.get(0, first + s, h, c), out.get(0, s, h, c)) << b << ' ' << s;
      ASSERT_EQ(packed.log(h, first + s), logs[static_cast<std::size_t>(h * queries + s)]);
    });
  }
  for (std::int64_t h = 0; h < kHeads; ++h) {
    EXPECT_EQ(packed.log(h, packed.of_q.back()), 7.0f);
    EXPECT_EQ(packed.out.get(0, packed.of_q.back(), h, 0), 7.0f);
  }
}

TEST(PackedSequences, EqualCallsOfTheirOwn) {
  for (const Mask mask : {Mask::none, Mask::causal}) {
    // One without queries, one without keys, and the ends of blocks.
    Packed packed({0, 130, 130, 138, 200, 201}, {0, 128, 300, 300, 429, 500});
    AttentionOptions options = packed.options();
    options.mask = mask;
    packed.attend(options);
    expect_calls_of_their_own(packed, options);
  }
}

TEST(PackedSequences, ElementsOfNoSequenceAreNotRead) {
  Packed packed({0, 9, 17}, {0, 140, 150});
  packed.k.fill([&](auto, auto s, auto h, auto c) {
    return s < 150 ? packed.k.get(0, s, h, c) : std::numeric_limits<float>::quiet_NaN();
  });
  packed.attend(packed.options());
  expect_calls_of_their_own(packed, packed.options());
}

TEST(PackedSequences, NoTokensAtAll) {
  Packed packed({0, 0, 3}, {0, 0, 0});
  packed.attend(packed.options());
  expect_calls_of_their_own(packed, packed.options());
}

TEST(PackedSequences, RefusesBoundariesThatFitNoTensor) {
  const auto refusal = [](Boundaries of_q, Boundaries of_k) {
    Packed packed({0, 9, 17}, {0, 140, 150});
    packed.of_q = std::move(of_q);
    packed.of_k = std::move(of_k);
    return packed.refusal(packed.options());
  };
  EXPECT_EQ(refusal({0, 9, 17}, {0, 140, 150}), "accepted");
  EXPECT_THAT(refusal({1, 9, 17}, {0, 140, 150}), HasSubstr("cu_seqlens_q: starts with 1; exp"));
  EXPECT_THAT(
      refusal({0, 9, 17}, {0, 150, 140}),
      HasSubstr("cu_seqlens_k: 140 at index 2 follows 150; expected numbers that never fall. "
                "Pass the running sums of the lengths"));
  EXPECT_THAT(refusal({0, 9, 20}, {0, 140, 150}),
              HasSubstr("cu_seqlens_q: ends with 20; expected at most 19, the tokens of q."));
  Packed packed({0, 9, 17}, {0, 140, 150});
  AttentionOptions options = packed.options();
  options.sequences.max_seqlen_k = 139;
  EXPECT_THAT(packed.refusal(options), HasSubstr("max_seqlen_k: 139; expected at least 140, the "
                                                 "tokens of sequence 0 in cu_seqlens_k"));
  EXPECT_THROW(check_sequences(options.sequences, 19, 152), Error);
  options.sequences.max_seqlen_k = 140;
  EXPECT_NO_THROW(check_sequences(options.sequences, 19, 152));
}

TEST(PackedSequences, RefusesWhatItCannotHonour) {
  Packed packed({0, 9, 17}, {0, 140, 150});
  const auto with = [&](const auto& change) {
    AttentionOptions options = packed.options();
    change(options);
    return is_supported(packed.q.view(), packed.k.view(), packed.v.view(), options).reason;
  };
  EXPECT_EQ(with([](auto&) {}), "");
  EXPECT_THAT(with([](auto& o) { o.sequences.count = -1; }), HasSubstr("sequences: -1; expected"));
  EXPECT_THAT(with([](auto& o) { o.sequences.max_seqlen_q = -3; }),
              HasSubstr("max_seqlen_q: -3; expected"));
  EXPECT_THAT(with([](auto& o) { o.sequences.count = std::int64_t{1} << 40; }),
              HasSubstr("batch 1099511627776 and 4 heads with 17 queries"));
  EXPECT_THAT(with([](auto& o) { o.keys.lengths = o.sequences.cu_seqlens_k; }),
              HasSubstr("key_lengths: together with packed sequences"));
  const auto* odd = reinterpret_cast<const char*>(packed.of_q.data()) + 2;
  EXPECT_THAT(
      with([&](auto& o) { o.sequences.cu_seqlens_q = reinterpret_cast<const std::int32_t*>(odd); }),
      HasSubstr("cu_seqlens_q: pointer is not a multiple of 4"));
  TensorView two = packed.q.view();
  two.shape[kBatch] = 2;
  TensorView of_k = packed.k.view();
  of_k.shape[kBatch] = 2;
  EXPECT_THAT(is_supported(two, of_k, of_k, packed.options()).reason,
              HasSubstr("q: shape [2, 19, 4, 32] has batch 2; expected 1 with packed sequences"));
  try {
    (void)prepare(packed.q.view(), packed.k.view(), packed.v.view(), packed.options());
    ADD_FAILURE() << "prepare() accepted packed sequences";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("sequences: 2 packed ones; expected tensors that are not"));
  }
  AttentionOptions options = packed.options();
  options.sequences.cu_seqlens_q = nullptr;
  EXPECT_THAT(packed.refusal(options), HasSubstr("cu_seqlens_q: pointer is null"));
  options.sequences.cu_seqlens_q = reinterpret_cast<const std::int32_t*>(packed.logs.data());
  EXPECT_THAT(packed.refusal(options), HasSubstr("log_sum_exp: memory overlaps cu_seqlens_q"));
}

}  // namespace
}  // namespace openvc
