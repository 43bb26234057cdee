// SPDX-License-Identifier: BSD-3-Clause
//
// The softmax step of the Hopper kernel against the contract: stored score tiles go through the
// real step of the main loop. Row state and probability bytes must equal those of
// numerics/online_softmax.hpp; rescale factors are within the error of their instruction.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/sm90/config.hpp"
#include "cuda/sm90/configurations.hpp"
#include "cuda/sm90/mainloop.cuh"
#include "cuda/sm90/softmax.cuh"
#include "golden/softmax_sweep.hpp"
#include "gpu/device_buffer.hpp"
#include "numerics/half.hpp"
#include "numerics/online_softmax.hpp"

namespace openvc::cuda::sm90 {
namespace {

constexpr int kRows = kRowsPerWarpgroup;
constexpr int kKeys = numerics::kKeyBlock;
constexpr int kColumns = kValueRows;  // of the binary32 fragment

struct RowResult {
  float row_max;
  float offset;
  float o_rescale;  // of this tile: what the accumulator has to be multiplied with
};

/// Place of register `i` of a thread in a tile of binary16 scores: row and first of two columns.
struct ScorePlace {
  int row;
  int column;

  __device__ explicit ScorePlace(int i)
      : row(16 * (static_cast<int>(threadIdx.x) / kWarpThreads) +
            static_cast<int>(threadIdx.x) % kWarpThreads / 4 + 8 * (i % 2)),
        column(16 * (i / 4) + 8 * (i % 4 / 2) + 2 * (static_cast<int>(threadIdx.x) % 4)) {}
};

__device__ void load_scores(Scores& fragment, const std::uint16_t* tile) {
  for (int i = 0; i < kScoreRegisters; ++i) {
    const ScorePlace at(i);
    fragment[i] = *reinterpret_cast<const std::uint32_t*>(tile + at.row * kKeys + at.column);
  }
}

/// The softmax step of the main loop that is compiled for this head.
template <IntervalTile kDone>
__device__ void softmax_step(Consumer<Dense>& consumer, Fragments& f, int step) {
  switch (exp_cast_path(consumer.head)) {
    case ExpCastPath::plain:
      return consumer.softmax<ExpCastPath::plain, kDone>(f, f.scores_a, step);
    case ExpCastPath::tail:
      return consumer.softmax<ExpCastPath::tail, kDone>(f, f.scores_a, step);
    case ExpCastPath::wide:
      return consumer.softmax<ExpCastPath::wide, kDone>(f, f.scores_a, step);
  }
}

/// One warpgroup: tiles [tile][row][key] of binary16 scores to codes [tile][row][slot], the state
/// of every row after every tile, and products [tile][row][column], ones that were in `partial`
/// while the maxima moved.
template <IntervalTile kDone>
__global__ void softmax_tiles(const __grid_constant__ Parameters parameters,
                              const std::uint16_t* scores, int tiles, numerics::HeadRule head,
                              std::uint8_t* codes, RowResult* results, float* products) {
  extern __shared__ std::uint8_t unused[];  // the softmax step does not touch shared memory
  Consumer<Dense> consumer{parameters, *reinterpret_cast<Storage<Dense>*>(unused), 0};
  consumer.head = head;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  for (int tile = 0; tile < tiles; ++tile) {
    Fragments f;
    load_scores(f.scores_a, scores + std::int64_t{tile} * kRows * kKeys);
    for (float& value : f.partial) value = 1.0f;
    consumer.o_rescale = {};
    softmax_step<kDone>(consumer, f, tile);

    for (int i = 0; i < kProbabilityRegisters; ++i) {
      const std::int64_t row = std::int64_t{tile} * kRows + ScorePlace(i).row;
      const int slot = 16 * (i / 2) + 4 * (lane % 4);
      *reinterpret_cast<std::uint32_t*>(codes + row * kKeys + slot) = f.probabilities[i];
    }
    // PTX ISA, binary32 accumulator of wgmma: registers 4j and 4j + 1 are row g, columns 8j + 2t
    // and the next; 4j + 2 and 4j + 3 the same columns of row g + 8.
    for (int i = 0; i < kAccumulatorRegisters; ++i) {
      const std::int64_t row = std::int64_t{tile} * kRows + 16 * warp + lane / 4 + 8 * (i / 2 % 2);
      products[row * kColumns + 8 * (i / 4) + 2 * (lane % 4) + i % 2] = f.partial[i];
    }
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t packed = consumer.rows.row_max;
      const auto bits = static_cast<std::uint16_t>(half == 0 ? packed : packed >> 16);
      results[tile * kRows + ScorePlace(half).row] = {
          numerics::half_to_float(bits), consumer.rows.code_offset(half != 0, ExpCastRule(head)),
          half == 0 ? consumer.o_rescale.low : consumer.o_rescale.high};
    }
  }
}

/// Masks one tile: of every warp's 16 rows, the first eight at `low_limit`.
__global__ void mask_tile(std::uint16_t* scores, int low_limit, int high_limit) {
  Scores fragment;
  load_scores(fragment, scores);
  mask_scores(fragment, low_limit, high_limit);
  for (int i = 0; i < kScoreRegisters; ++i) {
    const ScorePlace at(i);
    *reinterpret_cast<std::uint32_t*>(scores + at.row * kKeys + at.column) = fragment[i];
  }
}

template <class T>
std::vector<T> download(const test::DeviceBuffer& buffer) {
  const std::vector<std::byte> bytes = buffer.download();
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void skip_without_hopper() {
  if (device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const DeviceInfo& device = device_info(0);
  if (device.major != 9 || device.minor != 0) GTEST_SKIP() << "the first device is no Hopper GPU";
}

struct Rule {
  std::string name;
  std::uint8_t score_exponent;
  bool tail;

  [[nodiscard]] numerics::HeadRule head() const {
    return {.score_exponent = score_exponent, .tail_correction = static_cast<std::uint8_t>(tail)};
  }
};

class SoftmaxStep : public testing::Test {
 protected:
  static constexpr int kTiles = 40;

  struct Results {
    std::vector<std::uint8_t> codes;
    std::vector<RowResult> rows;
    std::vector<float> products;
  };

  void SetUp() override { skip_without_hopper(); }

  /// Spreads from flat rows to hundreds of nats, centres from far below zero to far above.
  template <class Visit>
  static void for_each_distribution(const Visit& visit) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (const float spread : {0.3f, 12.0f, 60.0f, 900.0f, 9000.0f}) {
      for (const float centre : {0.0f, -500.0f, 700.0f, -20000.0f, 30000.0f}) {
        std::vector<std::uint16_t> scores(static_cast<std::size_t>(kTiles) * kRows * kKeys);
        for (auto& score : scores) {
          const float x = centre + spread * normal(random);
          score = numerics::float_to_half(numerics::saturate(x, 60000.0f));
          if (random() % 50 == 0) score = numerics::kHalfNegativeInfinity;  // masked
        }
        for (int row = 0; row < kRows; row += 5) {  // a first tile without any key
          for (int key = 0; key < kKeys; ++key) {
            scores[static_cast<std::size_t>(row * kKeys + key)] = numerics::kHalfNegativeInfinity;
          }
        }
        SCOPED_TRACE("spread " + std::to_string(spread) + ", centre " + std::to_string(centre));
        visit(scores);
      }
    }
  }

  template <IntervalTile kDone>
  static Results run(const std::vector<std::uint16_t>& scores, const Rule& rule) {
    return run<kDone>(scores, rule.head());
  }

  template <IntervalTile kDone>
  static Results run(const std::vector<std::uint16_t>& scores, const numerics::HeadRule& head) {
    const std::size_t all_rows = scores.size() / kKeys;
    const auto tiles = static_cast<int>(all_rows / kRows);
    test::DeviceBuffer device_scores(scores.size() * sizeof(std::uint16_t), 0);
    device_scores.upload(scores.data(), device_scores.size());
    const test::DeviceBuffer codes(scores.size(), 0);
    const test::DeviceBuffer rows(all_rows * sizeof(RowResult), 0);
    const test::DeviceBuffer products(all_rows * kColumns * sizeof(float), 0);
    softmax_tiles<kDone><<<1, kWarpgroupThreads>>>(
        Parameters{}, reinterpret_cast<const std::uint16_t*>(device_scores.data()), tiles, head,
        reinterpret_cast<std::uint8_t*>(codes.data()), reinterpret_cast<RowResult*>(rows.data()),
        reinterpret_cast<float*>(products.data()));
    check(cudaGetLastError(), "launching the softmax of tiles");
    check(cudaDeviceSynchronize(), "running the softmax of tiles");
    return {download<std::uint8_t>(codes), download<RowResult>(rows), download<float>(products)};
  }

  /// Calls visit(row, tile, state before, state after, factor) along the contract's walk.
  template <class Visit>
  static void walk(const std::vector<std::uint16_t>& scores, const Rule& rule, const Visit& visit) {
    const numerics::HeadRule contract_rule = rule.head();
    for (int row = 0; row < kRows; ++row) {
      numerics::RowState state;
      for (int tile = 0; tile < kTiles; ++tile) {
        const std::size_t first = (static_cast<std::size_t>(tile) * kRows + row) * kKeys;
        float block = -numerics::infinity();
        for (int key = 0; key < kKeys; ++key) {
          block = std::fmax(block, numerics::half_to_float(scores[first + key]));
        }
        const numerics::RowState before = state;
        const float factor = numerics::raise_row_max(state, block, contract_rule);
        visit(row, tile, before, state, factor);
      }
    }
  }
};

class SoftmaxTiles : public SoftmaxStep, public testing::WithParamInterface<Rule> {};

TEST_P(SoftmaxTiles, StateAndCodesEqualTheContract) {
  const Rule& rule = GetParam();
  const numerics::HeadRule contract_rule = rule.head();
  for_each_distribution([&](const std::vector<std::uint16_t>& scores) {
    const Results results = run<IntervalTile::single>(scores, rule);
    walk(scores, rule,
         [&](int row, int tile, const numerics::RowState&, const numerics::RowState& state, float) {
           const std::size_t index = static_cast<std::size_t>(tile) * kRows + row;
           const RowResult& result = results.rows[index];
           ASSERT_EQ(result.row_max, state.row_max) << "row " << row << " tile " << tile;
           if (state.row_max != -numerics::infinity()) {
             ASSERT_EQ(result.offset, state.offset) << "row " << row << " tile " << tile;
           }
           for (int key = 0; key < kKeys; ++key) {
             const float score = numerics::half_to_float(scores[index * kKeys + key]);
             ASSERT_EQ(results.codes[index * kKeys + numerics::slot_of_key(key)],
                       numerics::probability_code(score, state, contract_rule))
                 << "row " << row << " tile " << tile << " key " << key << " score " << score;
           }
         });
  });
}

// The factors are approximations (ex2.approx), except where a maximum stays: there they are 1.
TEST_P(SoftmaxTiles, RescaleFactorsFollowTheContract) {
  const Rule& rule = GetParam();
  int moved = 0;
  for_each_distribution([&](const std::vector<std::uint16_t>& scores) {
    const Results results = run<IntervalTile::single>(scores, rule);
    walk(scores, rule,
         [&](int row, int tile, const numerics::RowState& before, const numerics::RowState& after,
             float factor) {
           const std::size_t index = static_cast<std::size_t>(tile) * kRows + row;
           const float found = results.rows[index].o_rescale;
           if (after.row_max == before.row_max || before.row_max == -numerics::infinity()) {
             ASSERT_EQ(found, 1.0f) << "row " << row << " tile " << tile;
             return;
           }
           ++moved;
           // ex2.approx errs by 2^-22. Offsets of wide rules are rounded before the contract
           // subtracts them. Subnormal factors are flushed.
           const double rounding =
               rule.score_exponent == 0
                   ? 0.0
                   : 0x1p-23 * (std::fabs(before.offset) + std::fabs(after.offset));
           const double relative =
               0x1p-20 + std::fmin(std::expm1(numerics::kNatsPerCodeUnit * rounding), 1.0);
           ASSERT_NEAR(found, factor, relative * factor + 0x1p-126)
               << "row " << row << " tile " << tile;
         });
  });
  EXPECT_GT(moved, kRows) << "the maxima hardly moved";
}

// A product that has not been promoted follows the maxima; one that has is left alone.
TEST_P(SoftmaxTiles, OnlyAnOpenIntervalIsRescaled) {
  const Rule& rule = GetParam();
  for_each_distribution([&](const std::vector<std::uint16_t>& scores) {
    const Results open = run<IntervalTile::first>(scores, rule);
    const Results promoted = run<IntervalTile::single>(scores, rule);
    ASSERT_TRUE(open.codes == promoted.codes);
    for (std::size_t row = 0; row < open.rows.size(); ++row) {
      ASSERT_EQ(open.rows[row].o_rescale, promoted.rows[row].o_rescale) << "row " << row;
      for (int column = 0; column < kColumns; ++column) {
        ASSERT_EQ(open.products[row * kColumns + column], open.rows[row].o_rescale)
            << "row " << row << " column " << column;
        ASSERT_EQ(promoted.products[row * kColumns + column], 1.0f)
            << "row " << row << " column " << column;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Rules, SoftmaxTiles,
                         testing::Values(Rule{"plain", 0, false}, Rule{"tail", 0, true},
                                         Rule{"wide1", 1, false}, Rule{"wide7tail", 7, true},
                                         Rule{"wide31", 31, false}),
                         [](const auto& info) { return info.param.name; });

class GoldenSoftmax : public SoftmaxStep {};

TEST_F(GoldenSoftmax, ProbabilitiesAndOffsets) {
  static_assert(golden::kSweepRows == kRows);
  const std::vector<std::uint16_t> scores = golden::sweep_scores();
  for (const golden::SoftmaxCase& c : golden::softmax_cases()) {
    const Results results = run<IntervalTile::single>(scores, c.rule);
    golden::Hash codes;
    golden::Hash offsets;
    for (int row = 0; row < kRows; ++row) {
      for (int tile = 0; tile < golden::kSweepTiles; ++tile) {
        const std::size_t index = static_cast<std::size_t>(tile) * kRows + row;
        for (int key = 0; key < kKeys; ++key) {
          codes.value(results.codes[index * kKeys + numerics::slot_of_key(key)]);
        }
        golden::add_row(offsets, results.rows[index].row_max, results.rows[index].offset);
      }
    }
    golden::expect_golden("probabilities/" + c.name, codes.result());
    golden::expect_golden("row_offsets/" + c.name, offsets.result());
  }
}

TEST(MaskScores, HidesKeysAtAndBeyondTheLimitOfTheirRow) {
  skip_without_hopper();
  if (testing::Test::IsSkipped()) return;
  std::vector<std::uint16_t> scores(static_cast<std::size_t>(kRows) * kKeys);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    scores[i] = static_cast<std::uint16_t>(7 * i);  // every element its own bits, NaNs among them
  }
  test::DeviceBuffer device_scores(scores.size() * sizeof(std::uint16_t), 0);
  constexpr int kLimits[] = {-200, -1, 0, 1, 2, 7, 8, 63, 64, 101, 127, kKeys};
  for (const int low : kLimits) {
    for (const int high : kLimits) {
      device_scores.upload(scores.data(), device_scores.size());
      mask_tile<<<1, kWarpgroupThreads>>>(reinterpret_cast<std::uint16_t*>(device_scores.data()),
                                          low, high);
      check(cudaGetLastError(), "launching the mask of a tile");
      const auto masked = download<std::uint16_t>(device_scores);
      for (int row = 0; row < kRows; ++row) {
        const int limit = row % 16 < 8 ? low : high;
        for (int key = 0; key < kKeys; ++key) {
          const auto i = static_cast<std::size_t>(row * kKeys + key);
          ASSERT_EQ(masked[i], key < limit ? scores[i] : numerics::kHalfNegativeInfinity)
              << "limits " << low << " and " << high << ", row " << row << ", key " << key;
        }
      }
    }
  }
}

}  // namespace
}  // namespace openvc::cuda::sm90
