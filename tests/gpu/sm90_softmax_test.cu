// SPDX-License-Identifier: BSD-3-Clause
//
// The softmax step of the Hopper kernel against the contract: stored score tiles go through the
// real step of the main loop. Tops, offsets, references and probability bytes must equal those of
// numerics/online_softmax.hpp; weights of blocks are within the error of their instruction.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda/attention/fragment_softmax.cuh"
#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/ptx/cvt.cuh"
#include "cuda/sm90/config.hpp"
#include "cuda/sm90/configurations.hpp"
#include "cuda/sm90/mainloop.cuh"
#include "golden/softmax_sweep.hpp"
#include "gpu/device_buffer.hpp"
#include "numerics/half.hpp"
#include "numerics/online_softmax.hpp"

namespace openvc::cuda::sm90 {
namespace {

constexpr int kRows = kRowsPerWarpgroup;
constexpr int kKeys = numerics::kKeyBlock;

/// A tile of one row after the softmax step, and what its accumulator has become.
struct RowResult {
  float top;
  float offset;     // of narrow heads
  float reference;  // of wide heads
  float weight;
  float accumulator[2];  // least and greatest element; all were 1 before the step
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
__device__ void softmax_step(Consumer<Dense>& consumer, Fragments& f, int step) {
  if (consumer.head.wide()) {
    consumer.softmax<ExpCastPath::wide>(f, f.scores_a, step);
  } else {
    consumer.softmax<ExpCastPath::narrow>(f, f.scores_a, step);
  }
}

__device__ float half_of(std::uint32_t packed, int half) {
  return half == 0 ? ptx::cvt_f32_f16_low(packed) : ptx::cvt_f32_f16_high(packed);
}

/// One warpgroup: tiles [tile][row][key] of binary16 scores to codes [tile][row][slot], and the
/// state of every row after every tile.
__global__ void softmax_tiles(const __grid_constant__ Parameters parameters,
                              const std::uint16_t* scores, int tiles, numerics::HeadRule head,
                              std::uint8_t* codes, RowResult* results) {
  extern __shared__ std::uint8_t unused[];  // the softmax step does not touch shared memory
  Consumer<Dense> consumer{parameters, *reinterpret_cast<Storage<Dense>*>(unused), 0};
  consumer.head = head;
  for (int tile = 0; tile < tiles; ++tile) {
    Fragments f;
    load_scores(f.scores_a, scores + std::int64_t{tile} * kRows * kKeys);
    for (float& value : consumer.accumulator) value = 1.0f;
    softmax_step(consumer, f, tile);

    for (int i = 0; i < kProbabilityRegisters; ++i) {
      const std::int64_t row = std::int64_t{tile} * kRows + ScorePlace(i).row;
      const int slot = 16 * (i / 2) + 4 * (static_cast<int>(threadIdx.x) % 4);
      *reinterpret_cast<std::uint32_t*>(codes + row * kKeys + slot) = f.probabilities[i];
    }
    const std::uint32_t offset = block_offset<ExpCastPath::narrow>(f.block.top);
    for (int half = 0; half < 2; ++half) {
      float least = numerics::infinity();
      float greatest = -numerics::infinity();
      // PTX ISA, binary32 accumulator of wgmma: of every four registers the last two are row g + 8.
      for (int i = 2 * half; i < kAccumulatorRegisters; i += i % 2 == 0 ? 1 : 3) {
        least = fminf(least, consumer.accumulator[i]);
        greatest = fmaxf(greatest, consumer.accumulator[i]);
      }
      results[tile * kRows + ScorePlace(half).row] = {
          half_of(f.block.top, half),
          head.wide() ? 0.0f
                      : half_of(offset, half) * numerics::exp2_int(-numerics::kHalfGridExponent),
          head.wide() ? half_of(consumer.rows.reference, half) : 0.0f,
          half == 0 ? f.block.weight.low : f.block.weight.high,
          {least, greatest}};
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
  numerics::HeadRule head;
};

class SoftmaxStep : public testing::Test {
 protected:
  static constexpr int kTiles = 40;

  struct Results {
    std::vector<std::uint8_t> codes;
    std::vector<RowResult> rows;
  };

  void SetUp() override { skip_without_hopper(); }

  /// Spreads from flat rows to hundreds of nats, centres from far below zero to far above. Scores
  /// of narrow heads stay a little beyond what a plan allows.
  template <class Visit>
  static void for_each_distribution(const numerics::HeadRule& head, const Visit& visit) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const bool wide = head.wide();
    const float limit = wide ? 65504.0f : 700.0f;
    const float narrow_scale = wide ? 1.0f : 1.0f / 50.0f;
    for (const float spread : {0.3f, 12.0f, 60.0f, 900.0f, 9000.0f}) {
      for (const float centre : {0.0f, -500.0f, 700.0f, -20000.0f, 30000.0f}) {
        std::vector<std::uint16_t> scores(static_cast<std::size_t>(kTiles) * kRows * kKeys);
        for (auto& score : scores) {
          const float x = centre * narrow_scale + spread * normal(random);
          score = numerics::float_to_half(numerics::saturate(x, limit));
          if (random() % 50 == 0) score = numerics::kHalfNegativeInfinity;  // masked
        }
        // Without any key: in some rows the first tile, in others the last two, in a few all.
        for (int tile = 0; tile < kTiles; ++tile) {
          for (int row = 0; row < kRows; ++row) {
            const bool masked = (row % 5 == 0 && tile == 0) ||
                                (row % 5 == 1 && tile >= kTiles - 2) || row % 16 == 7;
            if (!masked) continue;
            const auto first = (static_cast<std::size_t>(tile) * kRows + row) * kKeys;
            std::fill_n(scores.begin() + static_cast<std::ptrdiff_t>(first), kKeys,
                        numerics::kHalfNegativeInfinity);
          }
        }
        SCOPED_TRACE("spread " + std::to_string(spread) + ", centre " + std::to_string(centre));
        visit(scores);
      }
    }
  }

  static Results run(const std::vector<std::uint16_t>& scores, const numerics::HeadRule& head) {
    const std::size_t all_rows = scores.size() / kKeys;
    const auto tiles = static_cast<int>(all_rows / kRows);
    test::DeviceBuffer device_scores(scores.size() * sizeof(std::uint16_t), 0);
    device_scores.upload(scores.data(), device_scores.size());
    const test::DeviceBuffer codes(scores.size(), 0);
    const test::DeviceBuffer rows(all_rows * sizeof(RowResult), 0);
    softmax_tiles<<<1, kWarpgroupThreads>>>(
        Parameters{}, reinterpret_cast<const std::uint16_t*>(device_scores.data()), tiles, head,
        reinterpret_cast<std::uint8_t*>(codes.data()), reinterpret_cast<RowResult*>(rows.data()));
    check(cudaGetLastError(), "launching the softmax of tiles");
    check(cudaDeviceSynchronize(), "running the softmax of tiles");
    return {download<std::uint8_t>(codes), download<RowResult>(rows)};
  }

  /// Calls visit(row, tile, block, state after) along the contract's walk.
  template <class Visit>
  static void walk(const std::vector<std::uint16_t>& scores, const numerics::HeadRule& head,
                   const Visit& visit) {
    for (int row = 0; row < kRows; ++row) {
      numerics::RowState state = numerics::empty_row(head);
      for (int tile = 0; tile < kTiles; ++tile) {
        const std::size_t first = (static_cast<std::size_t>(tile) * kRows + row) * kKeys;
        float top = numerics::kLeastTop;
        for (int key = 0; key < kKeys; ++key) {
          top = std::fmax(top, numerics::half_to_float(scores[first + key]));
        }
        const numerics::BlockCast block = numerics::begin_block(state, top, head);
        visit(row, tile, block, state);
      }
    }
  }
};

class SoftmaxTiles : public SoftmaxStep, public testing::WithParamInterface<Rule> {};

TEST_P(SoftmaxTiles, BlocksAndCodesEqualTheContract) {
  const numerics::HeadRule& head = GetParam().head;
  for_each_distribution(head, [&](const std::vector<std::uint16_t>& scores) {
    const Results results = run(scores, head);
    walk(scores, head,
         [&](int row, int tile, const numerics::BlockCast& block, const numerics::RowState& state) {
           const std::size_t index = static_cast<std::size_t>(tile) * kRows + row;
           const RowResult& result = results.rows[index];
           ASSERT_EQ(result.top, block.top) << "row " << row << " tile " << tile;
           ASSERT_EQ(result.offset, block.offset) << "row " << row << " tile " << tile;
           ASSERT_EQ(result.reference, state.reference) << "row " << row << " tile " << tile;
           for (int key = 0; key < kKeys; ++key) {
             const float score = numerics::half_to_float(scores[index * kKeys + key]);
             ASSERT_EQ(results.codes[index * kKeys + numerics::slot_of_key(key)],
                       numerics::probability_code(score, block, head))
                 << "row " << row << " tile " << tile << " key " << key << " score " << score;
           }
         });
  });
}

// Weights and rescale factors are approximations (ex2.approx, 2^-22; the contract's, 2^-23), except
// where a reference stays: there the accumulator is left alone. Subnormal results are flushed.
TEST_P(SoftmaxTiles, WeightsFollowTheContract) {
  constexpr float kRelative = 0x1p-21f;
  constexpr float kSmallest = 0x1p-126f;
  const numerics::HeadRule& head = GetParam().head;
  int moved = 0;
  for_each_distribution(head, [&](const std::vector<std::uint16_t>& scores) {
    const Results results = run(scores, head);
    walk(scores, head,
         [&](int row, int tile, const numerics::BlockCast& block, const numerics::RowState&) {
           const RowResult& result = results.rows[static_cast<std::size_t>(tile) * kRows + row];
           ASSERT_NEAR(result.weight, block.weight, kRelative * block.weight + kSmallest)
               << "row " << row << " tile " << tile;
           for (const float element : result.accumulator) {
             if (block.rescale == 1.0f) {
               ASSERT_EQ(element, 1.0f) << "row " << row << " tile " << tile;
             } else {
               ASSERT_NEAR(element, block.rescale, kRelative * block.rescale + kSmallest)
                   << "row " << row << " tile " << tile;
             }
           }
           moved += block.rescale != 1.0f;
         });
  });
  if (head.wide()) {
    EXPECT_GT(moved, kRows) << "the references hardly moved";
  } else {
    EXPECT_EQ(moved, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, SoftmaxTiles,
                         testing::Values(Rule{"narrow", numerics::head_rule(0, false)},
                                         Rule{"wide0", numerics::head_rule(0, true)},
                                         Rule{"wide1", numerics::head_rule(1, true)},
                                         Rule{"wide7", numerics::head_rule(7, true)},
                                         Rule{"wide31", numerics::head_rule(31, true)}),
                         [](const auto& info) { return info.param.name; });

class GoldenSoftmax : public SoftmaxStep {};

TEST_F(GoldenSoftmax, ProbabilitiesAndBlocks) {
  static_assert(golden::kSweepRows == kRows);
  for (const golden::SoftmaxCase& c : golden::softmax_cases()) {
    const Results results = run(golden::sweep_scores(c.rule), c.rule);
    golden::Hash codes;
    golden::Hash blocks;
    for (int row = 0; row < kRows; ++row) {
      for (int tile = 0; tile < golden::kSweepTiles; ++tile) {
        const std::size_t index = static_cast<std::size_t>(tile) * kRows + row;
        for (int key = 0; key < kKeys; ++key) {
          codes.value(results.codes[index * kKeys + numerics::slot_of_key(key)]);
        }
        const RowResult& result = results.rows[index];
        golden::add_block(blocks, result.top, result.offset, result.reference);
      }
    }
    golden::expect_golden("probabilities/" + c.name, codes.result());
    golden::expect_golden("blocks/" + c.name, blocks.result());
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
