// SPDX-License-Identifier: BSD-3-Clause
//
// The softmax step of the Hopper kernel against the contract, byte by byte: stored score tiles go
// through the real fragment code, and its row state and probability bytes must equal those of
// numerics/online_softmax.hpp.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/sm90/config.hpp"
#include "cuda/sm90/launch.hpp"
#include "cuda/sm90/softmax.cuh"
#include "numerics/half.hpp"
#include "numerics/online_softmax.hpp"

namespace openvc::cuda::sm90 {
namespace {

constexpr int kRows = kRowsPerWarpgroup;
constexpr int kKeys = numerics::kKeyBlock;

struct RowResult {
  float row_max;
  float offset;
};

/// One warpgroup: tiles [tile][row][key] of binary16 scores to codes [tile][row][slot] and the
/// state of every row after every tile.
__global__ void softmax_tiles(const std::uint16_t* scores, int tiles, numerics::HeadRule head,
                              std::uint8_t* codes, RowResult* results) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  const int quad = lane % 4;
  RowPair rows;
  for (int tile = 0; tile < tiles; ++tile) {
    Scores fragment;
    const auto row_of = [&](int i) { return 16 * warp + lane / 4 + 8 * (i % 2); };
    for (int i = 0; i < kScoreRegisters; ++i) {
      const int column = 16 * (i / 4) + 8 * (i % 4 / 2) + 2 * quad;
      fragment[i] = *reinterpret_cast<const std::uint32_t*>(
          scores + (static_cast<std::int64_t>(tile) * kRows + row_of(i)) * kKeys + column);
    }
    const std::uint32_t new_max = block_max(fragment, rows.row_max);
    if (__any_sync(0xFFFF'FFFFu, new_max != rows.row_max)) rows.raise(new_max, CodeRule(head));
    Probabilities probabilities;
    switch (code_path(head)) {
      case CodePath::plain:
        encode<CodePath::plain>(fragment, probabilities, rows, head);
        break;
      case CodePath::tail:
        encode<CodePath::tail>(fragment, probabilities, rows, head);
        break;
      case CodePath::any:
        encode<CodePath::any>(fragment, probabilities, rows, head);
        break;
    }
    for (int i = 0; i < kProbabilityRegisters; ++i) {
      const int slot = 16 * (i / 2) + 4 * quad;
      *reinterpret_cast<std::uint32_t*>(
          codes + (static_cast<std::int64_t>(tile) * kRows + row_of(i)) * kKeys + slot) =
          probabilities[i];
    }
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t packed = rows.row_max;
      const auto bits = static_cast<std::uint16_t>(half == 0 ? packed : packed >> 16);
      results[tile * kRows + row_of(half)] = {numerics::half_to_float(bits),
                                              rows.code_offset(half != 0, CodeRule(head))};
    }
  }
}

struct Rule {
  std::string name;
  std::uint8_t score_exponent;
  bool tail;
};

class SoftmaxTiles : public testing::TestWithParam<Rule> {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "no CUDA device";
    const DeviceInfo& device = device_info(0);
    const std::string reason = refusal(device.major, device.minor);
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_P(SoftmaxTiles, EqualTheContract) {
  constexpr int kTiles = 40;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  // Spreads from flat rows to hundreds of nats, centres from far below zero to far above.
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
      const Rule& rule = GetParam();
      const numerics::HeadRule head{.score_exponent = rule.score_exponent,
                                    .tail_correction = static_cast<std::uint8_t>(rule.tail)};
      std::uint16_t* device_scores = nullptr;
      std::uint8_t* device_codes = nullptr;
      RowResult* device_results = nullptr;
      std::vector<std::uint8_t> codes(scores.size());
      std::vector<RowResult> results(static_cast<std::size_t>(kTiles) * kRows);
      check(cudaMalloc(&device_scores, scores.size() * 2), "allocating scores");
      check(cudaMalloc(&device_codes, codes.size()), "allocating codes");
      check(cudaMalloc(&device_results, results.size() * sizeof(RowResult)), "allocating results");
      check(cudaMemcpy(device_scores, scores.data(), scores.size() * 2, cudaMemcpyHostToDevice),
            "copying scores");
      softmax_tiles<<<1, kWarpgroupThreads>>>(device_scores, kTiles, head, device_codes,
                                              device_results);
      check(cudaGetLastError(), "launching");
      check(cudaMemcpy(codes.data(), device_codes, codes.size(), cudaMemcpyDeviceToHost),
            "copying");
      check(cudaMemcpy(results.data(), device_results, results.size() * sizeof(RowResult),
                       cudaMemcpyDeviceToHost),
            "copying results");
      cudaFree(device_scores);
      cudaFree(device_codes);
      cudaFree(device_results);

      const numerics::HeadRule expected_rule = head;
      for (int row = 0; row < kRows; ++row) {
        numerics::RowState state;
        for (int tile = 0; tile < kTiles; ++tile) {
          const std::size_t first = (static_cast<std::size_t>(tile) * kRows + row) * kKeys;
          float block = -numerics::infinity();
          for (int key = 0; key < kKeys; ++key) {
            block = std::fmax(block, numerics::half_to_float(scores[first + key]));
          }
          numerics::raise_row_max(state, block, expected_rule);
          const RowResult& result = results[static_cast<std::size_t>(tile) * kRows + row];
          ASSERT_EQ(result.row_max, state.row_max) << "row " << row << " tile " << tile;
          if (state.row_max != -numerics::infinity()) {
            ASSERT_EQ(result.offset, state.offset) << "row " << row << " tile " << tile;
          }
          for (int key = 0; key < kKeys; ++key) {
            const float score = numerics::half_to_float(scores[first + key]);
            ASSERT_EQ(codes[first + numerics::slot_of_key(key)],
                      numerics::probability_code(score, state, expected_rule))
                << "row " << row << " tile " << tile << " key " << key << " score " << score;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, SoftmaxTiles,
                         testing::Values(Rule{"plain", 0, false}, Rule{"tail", 0, true},
                                         Rule{"wide1", 1, false}, Rule{"wide7tail", 7, true},
                                         Rule{"wide31", 31, false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace openvc::cuda::sm90
