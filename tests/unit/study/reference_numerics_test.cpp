// SPDX-License-Identifier: BSD-3-Clause
#include "study/reference_numerics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "openvc/attention.hpp"
#include "study/error_measure.hpp"
#include "study/families.hpp"
#include "unit/study/head_inputs.hpp"

namespace openvc::study {
namespace {

constexpr int kChannels = 128;

std::vector<std::int64_t> first_rows(std::int64_t count) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  return rows;
}

double error_of(const Tensors& in, Mask mask) {
  const auto rows = first_rows(in.q.shape[kSequence]);
  const ReferenceHead reference(head_inputs(in, mask), rows);
  const auto output = reference.output(0, static_cast<std::int64_t>(rows.size()));
  std::vector<double> exact(output.size());
  exact_attention(in.q.view(), in.k.view(), in.v.view(), rows, exact.data(), nullptr, mask);
  return measure_error(output, exact).relative_l2();
}

TEST(ReferenceNumerics, GaussianErrorIsThePublishedOne) {
  // docs/numerics.md: 5.7 % for a flat softmax over unrelated keys.
  EXPECT_NEAR(error_of(generate("gaussian", {1, 400, 400, 1}), Mask::none), 0.057, 0.008);
}

TEST(ReferenceNumerics, CausalMask) {
  EXPECT_LT(error_of(generate("gaussian", {1, 200, 300, 1}), Mask::causal), 0.08);
  EXPECT_LT(error_of(generate("gaussian", {1, 300, 200, 1}), Mask::causal), 0.08);
}

TEST(ReferenceNumerics, AKeyOffsetHurtsBecauseNothingIsSmoothed) {
  EXPECT_GT(error_of(generate("channel_outliers", {1, 300, 300, 1}), Mask::none), 0.1);
}

TEST(ReferenceNumerics, OneTokenGivesItsRoundedValue) {
  // One value is the largest of its head and hence exact; 1/448 of it is representable, too.
  Tensors in = generate("gaussian", {1, 1, 1, 1}, ElementType::float32);
  for (std::int64_t c = 0; c < kChannels; ++c) {
    store_element(in.v.bytes.data(), ElementType::float32, c, c == 0 ? 448.0f : 1.0f);
  }
  constexpr std::int64_t kRows[] = {0};
  const auto output = ReferenceHead(head_inputs(in), kRows).output(0, 1);
  EXPECT_DOUBLE_EQ(output[0], 448.0);
  EXPECT_DOUBLE_EQ(output[1], 1.0);
}

TEST(ReferenceNumerics, ProbabilityCodesFollowTheConstant) {
  // Two keys whose scores differ by d: beta = -0.35 puts the peak at 119.65, which rounds to 120,
  // and the other at round(119.65 - d). d = 8 gives 112, half the weight.
  Tensors in = generate("gaussian", {1, 1, 2, 1}, ElementType::float32);
  const auto set = [](OwnedTensor& tensor, std::int64_t token, float first) {
    for (std::int64_t c = 0; c < kChannels; ++c) {
      store_element(tensor.bytes.data(), ElementType::float32, token * kChannels + c,
                    c == 0 ? first : 0.0f);
    }
  };
  set(in.q, 0, 448.0f);
  set(in.k, 0, 448.0f);
  set(in.k, 1, 416.0f);
  set(in.v, 0, 448.0f);
  set(in.v, 1, 0.0f);
  HeadInputs inputs = head_inputs(in);
  const auto weight_of_first = [&](double code_units) {
    // 8 log2(e) scale 448 (448 - 416) = code_units
    inputs.softmax_scale = static_cast<float>(code_units / (11.541560327111707 * 448.0 * 32.0));
    constexpr std::int64_t kRows[] = {0};
    return ReferenceHead(inputs, kRows).output(0, 1)[0] / 448.0;
  };
  EXPECT_DOUBLE_EQ(weight_of_first(8.0), 1.0 / 1.5);
  EXPECT_DOUBLE_EQ(weight_of_first(8.1), 1.0 / 1.5);    // 111.55
  EXPECT_DOUBLE_EQ(weight_of_first(8.2), 256.0 / 376);  // 111.45 -> code 111, 120
}

}  // namespace
}  // namespace openvc::study
