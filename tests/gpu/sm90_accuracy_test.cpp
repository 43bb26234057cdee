// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cpu/exact_attention.hpp"
#include "gpu/attention_fixture.hpp"
#include "gpu/contract_rows.hpp"

// The Hopper kernel against attention in float64, and inputs whose result is known.
namespace openvc::test {
namespace {

class Sm90Accuracy : public Sm90Test {};

/// Exact attention of sampled queries: [B][rows][H][kHeadDim].
struct ExactRows {
  std::vector<std::int64_t> rows;
  std::vector<double> output;

  ExactRows(const AttentionCase& c, const study::Tensors& tensors, std::int64_t count) {
    const std::int64_t queries = c.problem.queries;
    count = std::min(count, queries);
    for (std::int64_t i = 0; i < count; ++i) rows.push_back(i * queries / count);
    output.resize(rows.size() * static_cast<std::size_t>(c.problem.batch_heads()) *
                  numerics::kHeadDim);
    cpu::exact_attention(tensors.q.view(), tensors.k.view(), tensors.v.view(), rows, output.data(),
                         nullptr, c.problem.mask, static_cast<double>(c.softmax_scale),
                         *cpu::shared_pool(0));
  }
};

struct ErrorOfHead {
  double squares = 0.0;        // of the differences
  double exact_squares = 0.0;  // of the exact values
  double sum = 0.0;            // of the differences, with sign
  std::int64_t elements = 0;

  [[nodiscard]] double relative() const {
    return exact_squares > 0.0 ? std::sqrt(squares / exact_squares) : std::sqrt(squares);
  }
  [[nodiscard]] double root_mean_square() const {
    return std::sqrt(squares / static_cast<double>(elements));
  }
  [[nodiscard]] double mean() const { return sum / static_cast<double>(elements); }
};

ErrorOfHead error_of_head(const schedule::Problem& p, const ExactRows& exact,
                          const AttentionResult& result, std::int64_t bh) {
  ErrorOfHead error;
  const auto count = static_cast<std::int64_t>(exact.rows.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const auto row = output_row(p, result.output, bh, exact.rows[static_cast<std::size_t>(i)]);
    const double* expected =
        exact.output.data() +
        ((bh / p.heads * count + i) * p.heads + bh % p.heads) * numerics::kHeadDim;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const double difference = double{row[c]} - expected[c];
      error.squares += difference * difference;
      error.exact_squares += expected[c] * expected[c];
      error.sum += difference;
      ++error.elements;
    }
  }
  return error;
}

AttentionResult device_result(const AttentionCase& c, const HostPrepared& host) {
  const DevicePrepared device(host);
  DeviceOutput out(c.problem, c.type);
  run_on_device(device.view(), out);
  EXPECT_EQ(out.fault(true), "");
  EXPECT_TRUE(device.guards_untouched());
  return out.read();
}

/// Whether the preparation has made a head wide (HeadRule::wide()).
bool wide_head(const HostPrepared& host, std::int64_t batch_head) {
  numerics::HeadRule rule;
  std::memcpy(&rule, host.view().data + host.view().layout.head_rule_at(batch_head), sizeof(rule));
  return rule.wide();
}

// ---- every family of inputs ---------------------------------------------------------------------

class Sm90Families : public Sm90Test, public testing::WithParamInterface<study::Family> {};

TEST_P(Sm90Families, ErrorIsThatOfTheCpuBackend) {
  for (const ElementType type : {ElementType::bfloat16, ElementType::float16}) {
    AttentionCase c = make_case(1, 2, 1000, 3000);
    c.type = type;
    SCOPED_TRACE(c.describe());
    const study::Tensors tensors = make_tensors(c, GetParam().name);
    const ExactRows exact(c, tensors, 200);
    const HostPrepared host(c, tensors);
    const AttentionResult on_device = device_result(c, host);
    const AttentionResult on_cpu = run_on_cpu(host, type);
    for (std::int64_t bh = 0; bh < c.problem.batch_heads(); ++bh) {
      // Flipped codes add to the error in squares: 2 % to 6 % are 5 % more.
      constexpr double kRatio = 1.15;
      constexpr double kFloor = 2e-3;  // the rounding of the output
      const double device_error = error_of_head(c.problem, exact, on_device, bh).relative();
      const double cpu_error = error_of_head(c.problem, exact, on_cpu, bh).relative();
      RecordProperty(std::string(element_name(type)) + "_head" + std::to_string(bh),
                     std::to_string(device_error) + " (CPU " + std::to_string(cpu_error) + ")");
      EXPECT_LE(device_error, kRatio * cpu_error + kFloor) << "head " << bh;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Sm90Families,
                         testing::ValuesIn(study::families().begin(), study::families().end()),
                         [](const auto& test) { return std::string(test.param.name); });

// ---- V on axes: residual columns, and the product behind the kernel
// ------------------------------

TEST_F(Sm90Accuracy, ValuesOnAxes) {
  constexpr std::int64_t kKeys = 4200;
  for (const ElementType type : {ElementType::bfloat16, ElementType::float16}) {
    for (const bool causal : {false, true}) {
      // Many tiles for a block of the product; with a mask, rows that see no key.
      const std::int64_t queries = causal ? kKeys + 200 : 300;
      AttentionCase c =
          make_case(2, causal ? 3 : 2, queries, kKeys, causal ? Mask::causal : Mask::none);
      c.type = type;
      c.numerics.value_axes = Choice::always;
      SCOPED_TRACE(c.describe());
      study::Tensors tensors = make_tensors(c);
      transform(tensors.v, [&](auto, auto, auto, std::int64_t channel, float x) {
        return channel % 21 == 4 ? 8.0f * x + 1.0f : x;
      });
      const HostPrepared host(c, tensors);
      numerics::HeadRule rule;
      std::memcpy(&rule, host.view().data + host.view().layout.head_rule_at(0), sizeof(rule));
      ASSERT_TRUE(rule.values_on_axes());
      const ExactRows exact(c, tensors, 200);
      const AttentionResult on_cpu = run_on_cpu(host, type);
      const DevicePrepared device(host);
      // Rows that start anywhere, with room between them.
      constexpr std::int64_t kPitch = numerics::kHeadDim + 3;
      const DeviceOutput out(
          c.problem, type,
          {queries * c.problem.heads * kPitch, c.problem.heads * kPitch, kPitch, 1}, 1);
      run_on_device(device.view(), out);
      EXPECT_EQ(out.fault(true), "");
      const AttentionResult aligned = device_result(c, host);
      const AttentionResult shifted = out.read();
      EXPECT_EQ(aligned.output, shifted.output);
      for (std::int64_t bh = 0; bh < c.problem.batch_heads(); ++bh) {
        EXPECT_LE(error_of_head(c.problem, exact, aligned, bh).relative(),
                  1.15 * error_of_head(c.problem, exact, on_cpu, bh).relative() + 2e-3)
            << "head " << bh;
      }
    }
  }
}

// ---- long sequences of values with an offset ----------------------------------------------------

/// The truncating accumulators of the tensor core would show here: 131,072 values of one sign.
TEST_F(Sm90Accuracy, OffsetOfValuesCostsNothing) {
  constexpr float kOffset = 1.0f;
  constexpr std::int64_t kKeys = 131'072;
  for (const bool centred : {true, false}) {
    AttentionCase c = make_case(1, 1, 64, kKeys);
    c.type = ElementType::float16;
    c.numerics.smooth_values = centred;
    study::Tensors tensors = make_tensors(c);
    // Values on a grid that binary16 holds with and without the offset.
    const auto on_grid = [](auto, auto, auto, auto, float x) {
      return std::round(x * 256.0f) / 256.0f;
    };
    transform(tensors.v, on_grid);
    const auto error = [&] {
      const HostPrepared host(c, tensors);
      return error_of_head(c.problem, ExactRows(c, tensors, c.problem.queries),
                           device_result(c, host), 0);
    };
    const ErrorOfHead plain = error();
    transform(tensors.v, [&](auto, auto, auto, auto, float x) { return x + kOffset; });
    const ErrorOfHead shifted = error();
    RecordProperty(centred ? "centred" : "plain",
                   "rms " + std::to_string(plain.root_mean_square()) + " shifted " +
                       std::to_string(shifted.root_mean_square()) + " mean error " +
                       std::to_string(shifted.mean()));
    // The output is near 1 now, where binary16 has steps of 2^-10: a uniform error.
    const double output_rounding = 0x1p-10 / std::sqrt(12.0);
    if (centred) {
      EXPECT_LE(shifted.root_mean_square(),
                std::hypot(1.1 * plain.root_mean_square(), 1.1 * output_rounding));
      EXPECT_LE(std::fabs(shifted.mean()), 1e-4);
    } else {
      // Without centring the sum is of one sign: the truncation between promotions remains, and
      // does not grow with the number of keys.
      EXPECT_LE(std::fabs(shifted.mean()), kAccumulation);
    }
  }
}

// ---- the denominator ----------------------------------------------------------------------------

/// ExpCast alone: the log-sum-exp against float64 on the same quantised scores.
TEST_F(Sm90Accuracy, LogSumExpHasNoBias) {
  constexpr double kRms = 0.005;                // nats
  constexpr double kMean = 0.002;               // nats
  for (const float deviation : {1.0f, 2.0f}) {  // of the scores, nats
    for (const bool wide : {false, true}) {
      AttentionCase c = make_case(1, 1, 128, 16'384);
      c.softmax_scale *= deviation;
      c.numerics.rotation = Choice::never;
      study::Tensors tensors = make_tensors(c);
      if (wide) {  // one query whose length alone makes the head wide
        transform(tensors.q,
                  [](auto, std::int64_t s, auto, auto, float x) { return s == 5 ? 16.0f * x : x; });
      }
      const HostPrepared host(c, tensors);
      const AttentionResult result = device_result(c, host);
      ASSERT_EQ(wide_head(host, 0), wide);
      double sum = 0.0;
      double squares = 0.0;
      std::int64_t rows = 0;
      for (std::int64_t i = 0; i < c.problem.queries; ++i) {
        if (wide && i == 5) continue;
        const double exact = contract_row(host.view(), 0, i).exact_log_sum_exp;
        const double difference = double{result.log_sum_exp[static_cast<std::size_t>(i)]} - exact;
        sum += difference;
        squares += difference * difference;
        ++rows;
      }
      const double mean = sum / static_cast<double>(rows);
      const double rms = std::sqrt(squares / static_cast<double>(rows));
      RecordProperty((wide ? "wide_" : "narrow_") + std::to_string(deviation),
                     "rms " + std::to_string(rms) + " mean " + std::to_string(mean));
      EXPECT_LE(rms, kRms) << deviation << " nats";
      EXPECT_LE(std::fabs(mean), kMean) << deviation << " nats";
    }
  }
}

// ---- inputs with a known result -----------------------------------------------------------------

TEST_F(Sm90Accuracy, EqualKeysAverageTheValues) {
  for (const bool smooth : {true, false}) {
    for (const std::int64_t keys : {2, 129, 1000, 5000}) {
      AttentionCase c = make_case(1, 2, 150, keys);
      c.numerics.smooth_keys = smooth;
      study::Tensors tensors = make_tensors(c);
      transform(tensors.k, [](auto, auto, auto, std::int64_t channel, float) {
        return 0.01f * static_cast<float>(channel % 7) - 0.02f;
      });
      // Equal scores have equal codes on each backend, whichever they are.
      const HostPrepared host(c, tensors);
      const AttentionResult result = device_result(c, host);
      EXPECT_EQ(disagreement(c.problem, result, run_on_cpu(host, c.type), {.flipped = 0.0}), "")
          << c.describe();
      const ExactRows exact(c, tensors, 20);
      for (std::int64_t bh = 0; bh < 2; ++bh) {
        // Rounding of independent values averages out like the values themselves.
        EXPECT_LE(error_of_head(c.problem, exact, result, bh).relative(), 0.035) << c.describe();
      }
    }
  }
}

TEST_F(Sm90Accuracy, NearOneHotPicksItsKey) {
  // Query i looks at key (7 i) mod keys, 100 nats above all others.
  AttentionCase c = make_case(1, 1, 500, 1000);
  study::Tensors tensors = make_tensors(c);
  const study::OwnedTensor keys = tensors.k;
  transform(tensors.q, [&](auto, std::int64_t s, auto, std::int64_t channel, auto) {
    const std::int64_t target = 7 * s % c.problem.keys;
    constexpr float kGain = 9.0f;  // |k|^2 / sqrt(128) is 11.3 nats
    return kGain *
           study::load_element(keys.bytes.data(), keys.type, target * numerics::kHeadDim + channel);
  });
  const HostPrepared host(c, tensors);
  const AttentionResult result = device_result(c, host);
  for (std::int64_t i = 0; i < c.problem.queries; ++i) {
    const auto row = output_row(c.problem, result.output, 0, i);
    for (std::int64_t channel = 0; channel < numerics::kHeadDim; ++channel) {
      const float value =
          study::load_element(tensors.v.bytes.data(), tensors.v.type,
                              7 * i % c.problem.keys * numerics::kHeadDim + channel);
      // Half a step of E4M3 is 1/16; small values have the absolute step of the channel's scale.
      ASSERT_NEAR(row[static_cast<std::size_t>(channel)], value, 0.0625f * std::fabs(value) + 0.01f)
          << "row " << i << " channel " << channel;
    }
  }
}

TEST_F(Sm90Accuracy, LogitsOfHundredsOfNats) {
  // All logits near -400, or near +400: only their differences matter.
  for (const float sign : {-1.0f, 1.0f}) {
    for (const bool smooth : {true, false}) {
      AttentionCase c = make_case(1, 1, 300, 900);
      c.numerics.smooth_keys = smooth;
      c.numerics.rotation = Choice::never;
      study::Tensors tensors = make_tensors(c);
      constexpr float kCommon = 6.0f;  // 128 * 36 / sqrt(128) = 407 nats
      transform(tensors.q, [&](auto, auto, auto, auto, float x) { return 0.1f * x + kCommon; });
      transform(tensors.k,
                [&](auto, auto, auto, auto, float x) { return 0.1f * x + sign * kCommon; });
      const HostPrepared host(c, tensors);
      const AttentionResult result = device_result(c, host);
      const AttentionResult on_cpu = run_on_cpu(host, c.type);
      if (smooth) {
        EXPECT_EQ(disagreement(c.problem, result, on_cpu), "") << c.describe() << " sign " << sign;
      } else {
        // Scores are near 3300 code units, where binary16 has steps of 2: two backends that round
        // differently have codes in common only by chance, but errors of one size.
        const ExactRows exact(c, tensors, c.problem.queries);
        EXPECT_LE(error_of_head(c.problem, exact, result, 0).relative(),
                  1.5 * error_of_head(c.problem, exact, on_cpu, 0).relative())
            << c.describe() << " sign " << sign;
      }
      for (const float lse : result.log_sum_exp) {
        EXPECT_NEAR(lse, sign * 407.0f + std::log(900.0f), 25.0f);
      }
      for (const float x : result.output) ASSERT_TRUE(std::isfinite(x));
    }
  }
}

/// Tops far beyond those whose offset binary16 holds: every key has the same score, or nearly.
TEST_F(Sm90Accuracy, EqualScoresOfThousandsOfNats) {
  for (const float nats : {-3000.0f, -250.0f, 250.0f, 3000.0f}) {
    for (const Mask mask : {Mask::none, Mask::causal}) {
      AttentionCase c = make_case(1, 1, 300, 900, mask);
      c.numerics.smooth_keys = false;
      c.numerics.rotation = Choice::never;
      c.numerics.max_extra_steps = 0;
      study::Tensors tensors = make_tensors(c);
      const float common = std::sqrt(std::fabs(nats) / std::sqrt(128.0f));
      transform(tensors.q, [&](auto, auto, auto, auto, float) { return common; });
      transform(tensors.k,
                [&](auto, auto, auto, auto, float) { return std::copysign(common, nats); });
      const HostPrepared host(c, tensors);
      const AttentionResult result = device_result(c, host);
      // Backends may round the score of thousands of code units differently: 32 units at most.
      EXPECT_EQ(disagreement(c.problem, result, run_on_cpu(host, c.type),
                             {.flipped = 0.0, .log_sum_exp = 3.0}),
                "")
          << c.describe() << " nats " << nats;
      for (std::int64_t i = 0; i < c.problem.queries; ++i) {
        const float keys = static_cast<float>(schedule::visible_keys(c.problem, i));
        ASSERT_NEAR(result.log_sum_exp[static_cast<std::size_t>(i)], nats + std::log(keys),
                    0.15f * std::fabs(nats))
            << c.describe() << " row " << i;
      }
    }
  }
}

/// Scores that rise, or fall, from block to block by more than binary32 has room for.
TEST_F(Sm90Accuracy, BlocksFarApart) {
  for (const float step : {-3000.0f, -400.0f, -89.0f, 89.0f, 400.0f, 3000.0f}) {  // nats a block
    for (const Mask mask : {Mask::none, Mask::causal}) {
      AttentionCase c = make_case(1, 1, 300, 1000, mask);
      c.problem.key_order = KeyOrder::descending;
      c.numerics.rotation = Choice::never;
      c.numerics.max_extra_steps = 0;
      c.type = ElementType::float16;
      study::Tensors tensors = make_tensors(c);
      constexpr float kQuery = 64.0f;
      const float rise = step * std::sqrt(128.0f) / kQuery;
      transform(tensors.q, [&](auto, auto, auto, std::int64_t channel, float x) {
        return channel == 0 ? kQuery : 0.01f * x;
      });
      transform(tensors.k, [&](auto, std::int64_t s, auto, std::int64_t channel, float x) {
        const auto block = static_cast<float>(s / numerics::kKeyBlock);
        return channel == 0 ? -rise * block : 0.01f * x;
      });
      const HostPrepared host(c, tensors);
      ASSERT_TRUE(wide_head(host, 0));
      const AttentionResult result = device_result(c, host);
      for (const float x : result.output) ASSERT_TRUE(std::isfinite(x)) << c.describe() << step;
      for (const float x : result.log_sum_exp) ASSERT_TRUE(std::isfinite(x)) << c.describe();
      // Of each row the block with the largest scores is left, the same on both backends.
      EXPECT_EQ(disagreement(c.problem, result, run_on_cpu(host, c.type),
                             {.flipped = 0.1, .log_sum_exp = 1e-3 * std::fabs(step) * 8.0}),
                "")
          << c.describe() << " step " << step;
    }
  }
}

TEST_F(Sm90Accuracy, FiniteInputsNeverGiveNan) {
  for (const float query_gain : {1e-30f, 1e-3f, 1.0f, 1e3f, 1e8f, 1e30f}) {
    for (const float key_gain : {1e-30f, 1.0f, 1e4f, 1e30f}) {
      for (const Mask mask : {Mask::none, Mask::causal}) {
        AttentionCase c = make_case(1, 1, 150, 400, mask);
        study::Tensors tensors = make_tensors(c);
        transform(tensors.q, [&](auto, auto, auto, auto, float x) { return query_gain * x; });
        transform(tensors.k, [&](auto, auto, auto, auto, float x) { return key_gain * x; });
        const AttentionResult result = device_result(c, HostPrepared(c, tensors));
        for (const float x : result.output) {
          ASSERT_TRUE(std::isfinite(x)) << query_gain << " " << key_gain;
        }
        for (const float x : result.log_sum_exp) {
          ASSERT_FALSE(std::isnan(x)) << query_gain << " " << key_gain;
        }
      }
    }
  }
}

/// Codes depend on their own block alone: the order of blocks changes binary32 sums, nothing else.
TEST_F(Sm90Accuracy, OrderOfKeyBlocksDoesNotMatter) {
  constexpr std::int64_t kBlocks = 10;
  constexpr std::int64_t kKeys = kBlocks * numerics::kKeyBlock;
  for (const float gain : {1.0f, 30.0f, 300.0f}) {  // narrow, then wide heads
    AttentionCase c = make_case(1, 2, 300, kKeys);
    c.type = ElementType::float16;
    c.softmax_scale *= gain;
    // Bytes of a key must not depend on where it stands: no mean of K or V, whose sum has an order.
    c.numerics.smooth_keys = c.numerics.smooth_values = false;
    c.numerics.rotation = Choice::never;
    c.numerics.max_extra_steps = 0;
    study::Tensors tensors = make_tensors(c);
    const AttentionResult expected = device_result(c, HostPrepared(c, tensors));
    for (const std::int64_t stride : {3, 7, 9}) {  // coprime to the number of blocks
      study::Tensors moved = make_tensors(c);
      for (const auto& [to, from] : {std::pair{&moved.k, &tensors.k}, {&moved.v, &tensors.v}}) {
        transform(*to, [&](auto, std::int64_t s, std::int64_t h, std::int64_t channel, auto) {
          const std::int64_t block = s / numerics::kKeyBlock * stride % kBlocks;
          const std::int64_t token = block * numerics::kKeyBlock + s % numerics::kKeyBlock;
          return study::load_element(from->bytes.data(), from->type,
                                     (token * c.problem.heads + h) * numerics::kHeadDim + channel);
        });
      }
      for (const KeyOrder order : {KeyOrder::mid_window, KeyOrder::descending}) {
        c.problem.key_order = order;
        const AttentionResult result = device_result(c, HostPrepared(c, moved));
        for (std::size_t i = 0; i < expected.output.size(); ++i) {
          // A sum near a tie of the output's rounding may take the other side.
          const float e = expected.output[i];
          ASSERT_NEAR(result.output[i], e, 0x1p-10f * std::fabs(e) + 1e-4f) << gain << " at " << i;
        }
        for (std::size_t i = 0; i < expected.log_sum_exp.size(); ++i) {
          const float e = expected.log_sum_exp[i];
          ASSERT_NEAR(result.log_sum_exp[i], e, 1e-5f + 1e-6f * std::fabs(e)) << gain;
        }
      }
    }
  }
}

TEST_F(Sm90Accuracy, Zeros) {
  for (const std::int64_t keys : {1, 128, 1000}) {
    const AttentionCase c = make_case(1, 2, 200, keys);
    study::Tensors tensors = make_tensors(c);
    for (study::OwnedTensor* tensor : {&tensors.q, &tensors.k, &tensors.v}) {
      std::fill(tensor->bytes.begin(), tensor->bytes.end(), std::byte{0});
    }
    const HostPrepared host(c, tensors);
    const AttentionResult result = device_result(c, host);
    for (const float x : result.output) ASSERT_EQ(x, 0.0f);
    const AttentionResult expected = run_on_cpu(host, c.type);
    for (std::size_t i = 0; i < result.log_sum_exp.size(); ++i) {
      // Equal scores all have the peak code, and its weight is exact.
      ASSERT_NEAR(result.log_sum_exp[i], std::log(static_cast<float>(keys)), 1e-4f);
      ASSERT_NEAR(result.log_sum_exp[i], expected.log_sum_exp[i], 1e-4f);
    }
  }
}

TEST_F(Sm90Accuracy, ConstantValuesComeBack) {
  for (const bool centred : {true, false}) {
    for (const std::int64_t keys : {1, 129, 1000, 40'000}) {
      AttentionCase c = make_case(1, 1, 130, keys);
      c.numerics.smooth_values = centred;
      study::Tensors tensors = make_tensors(c);
      const auto value = [](std::int64_t channel) {
        return static_cast<float>(channel - 60) * 0.03125f;
      };
      transform(tensors.v,
                [&](auto, auto, auto, std::int64_t channel, float) { return value(channel); });
      const AttentionResult result = device_result(c, HostPrepared(c, tensors));
      for (std::int64_t i = 0; i < c.problem.queries; ++i) {
        const auto row = output_row(c.problem, result.output, 0, i);
        for (std::int64_t channel = 0; channel < numerics::kHeadDim; ++channel) {
          // Centred, the value is the mean itself. Otherwise numerator and denominator are
          // truncated by the tensor core, each by less than 2^-10.
          const float exact = value(channel);
          ASSERT_NEAR(row[static_cast<std::size_t>(channel)], exact,
                      std::fabs(exact) * (centred ? 0x1p-8f : 0x1p-7f))
              << c.describe() << " row " << i << " channel " << channel;
        }
      }
    }
  }
}

}  // namespace
}  // namespace openvc::test
