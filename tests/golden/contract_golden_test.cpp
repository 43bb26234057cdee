// SPDX-License-Identifier: BSD-3-Clause
//
// Nothing that a contract version produces may change: its numbers, the bytes of prepared inputs,
// probability bytes and the states of rows.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "cpu/prepare.hpp"
#include "golden/golden_file.hpp"
#include "golden/prepared_sweep.hpp"
#include "golden/softmax_sweep.hpp"
#include "numerics/contract.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/exp_cast.hpp"
#include "numerics/online_softmax.hpp"
#include "schedule/traversal.hpp"

namespace openvc::golden {
namespace {

TEST(GoldenContract, Numbers) {
  static_assert(sizeof(numerics::Contract) % 4 == 0, "ints and floats alone, without padding");
  expect_golden("contract",
                Hash{}.bytes(&numerics::kContract, sizeof(numerics::Contract)).result());
}

TEST(GoldenContract, ProbabilitiesAndRowStates) {
  const std::vector<std::uint16_t> scores = sweep_scores();
  for (const SoftmaxCase& c : softmax_cases()) {
    Hash codes;
    Hash states;
    Hash offsets;
    for (int row = 0; row < kSweepRows; ++row) {
      numerics::RowState state;
      for (int tile = 0; tile < kSweepTiles; ++tile) {
        const std::uint16_t* keys =
            scores.data() + (std::size_t(tile) * kSweepRows + row) * numerics::kKeyBlock;
        float block_max = -numerics::infinity();
        for (int key = 0; key < numerics::kKeyBlock; ++key) {
          const float score = numerics::half_to_float(keys[key]);
          if (score > block_max) block_max = score;
        }
        const float factor = numerics::raise_row_max(state, block_max, c.rule);
        for (int key = 0; key < numerics::kKeyBlock; ++key) {
          const std::uint8_t code =
              numerics::probability_code(numerics::half_to_float(keys[key]), state, c.rule);
          state.sum += numerics::e4m3_decode(code);
          codes.value(code);
        }
        add_row(offsets, state.row_max, state.offset);
        states.value(factor).value(state.row_max).value(state.offset).value(state.sum);
      }
      states.value(numerics::log_sum_exp(state, 1.0f, 0.25f, 0))
          .value(numerics::log_sum_exp(state, 1.0f, 0.25f, 3));
    }
    expect_golden("probabilities/" + c.name, codes.result());
    expect_golden("row_offsets/" + c.name, offsets.result());
    expect_golden("row_states/" + c.name, states.result());
  }
}

TEST(GoldenContract, KeyOrder) {
  Hash hash;
  for (const KeyOrder order : {KeyOrder::mid_window, KeyOrder::descending}) {
    for (const Mask mask : {Mask::none, Mask::causal}) {
      for (const std::int64_t queries : {1, 300, 5'000}) {
        for (const std::int64_t keys : {1, 777, 5'000}) {
          schedule::Problem p{.queries = queries, .keys = keys, .mask = mask, .key_order = order};
          for (std::int64_t block = 0; block < p.query_blocks(); ++block) {
            const schedule::Traversal traversal = schedule::traversal(p, block);
            for (std::int64_t i = 0; i < traversal.blocks; ++i) hash.value(traversal.block(i));
          }
        }
      }
    }
  }
  expect_golden("key_order", hash.result());
}

TEST(GoldenContract, PreparedBytes) {
  cpu::ThreadPool pool(2);
  for (const PreparedCase& c : prepared_cases()) {
    const PreparedInputs inputs(c);
    const schedule::PrepareRequest request =
        prepare_request(c, inputs.q.view(), inputs.k.view(), inputs.v.view(), cpu::kPackedFormat);
    const std::size_t size = schedule::prepared_layout(request).bytes;
    std::vector<std::byte> storage(size + schedule::kSectionAlignment);
    void* start = storage.data();
    std::size_t space = storage.size();
    auto* block =
        static_cast<std::byte*>(std::align(schedule::kSectionAlignment, size, start, space));
    const std::vector<numerics::HeadPlan> plans = cpu::prepare(request, block, pool);
    expect_golden_prepared(c, request, block, plans);
  }
}

TEST(GoldenContract, CasesReachEveryChoiceOfAPlan) {
  cpu::ThreadPool pool(2);
  std::set<int> steps;
  bool rotated = false;
  bool tail = false;
  bool large_logits = false;
  for (const PreparedCase& c : prepared_cases()) {
    const PreparedInputs inputs(c);
    const schedule::PrepareRequest request =
        prepare_request(c, inputs.q.view(), inputs.k.view(), inputs.v.view(), cpu::kPackedFormat);
    std::vector<std::byte> storage(schedule::prepared_layout(request).bytes +
                                   schedule::kSectionAlignment);
    void* start = storage.data();
    std::size_t space = storage.size();
    auto* block = static_cast<std::byte*>(std::align(
        schedule::kSectionAlignment, schedule::prepared_layout(request).bytes, start, space));
    for (const numerics::HeadPlan& plan : cpu::prepare(request, block, pool)) {
      steps.insert(plan.scores.extra_steps);
      rotated |= plan.scores.rotated != 0;
      tail |= plan.tail_correction != 0 && c.numerics.tail_correction == Choice::automatic;
      large_logits |= plan.rule().wide();
    }
  }
  EXPECT_EQ(steps, (std::set<int>{0, 1, 2, 4}));
  EXPECT_TRUE(rotated && tail && large_logits) << rotated << tail << large_logits;
}

}  // namespace
}  // namespace openvc::golden
