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
  for (const SoftmaxCase& c : softmax_cases()) {
    const std::vector<std::uint16_t> scores = sweep_scores(c.rule);
    Hash codes;
    Hash states;
    Hash blocks;
    for (int row = 0; row < kSweepRows; ++row) {
      numerics::RowState state = numerics::empty_row(c.rule);
      for (int tile = 0; tile < kSweepTiles; ++tile) {
        const std::uint16_t* keys =
            scores.data() + (std::size_t(tile) * kSweepRows + row) * numerics::kKeyBlock;
        float top = numerics::kLeastTop;
        for (int key = 0; key < numerics::kKeyBlock; ++key) {
          const float score = numerics::half_to_float(keys[key]);
          if (score > top) top = score;
        }
        const numerics::BlockCast block = numerics::begin_block(state, top, c.rule);
        float sum = 0.0f;
        for (int key = 0; key < numerics::kKeyBlock; ++key) {
          const std::uint8_t code =
              numerics::probability_code(numerics::half_to_float(keys[key]), block, c.rule);
          sum += numerics::e4m3_decode(code);
          codes.value(code);
        }
        numerics::end_block(state, block, sum);
        add_block(blocks, block.top, block.offset, state.reference);
        states.value(block.weight).value(block.rescale).value(state.reference).value(state.sum);
      }
      numerics::HeadRule excess = c.rule;
      excess.excess_exponent = 3;
      states.value(numerics::log_sum_exp(state, c.rule, 1.0f, 0.25f))
          .value(numerics::log_sum_exp(state, excess, 1.0f, 0.25f));
      ASSERT_TRUE(state.sum > 0.0f && numerics::is_finite(state.sum)) << c.name << " row " << row;
    }
    expect_golden("probabilities/" + c.name, codes.result());
    expect_golden("blocks/" + c.name, blocks.result());
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
  bool axes = false;
  bool narrow = false;
  bool wide = false;
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
      axes |= plan.scores.axes != 0;
      narrow |= !plan.rule().wide();
      wide |= plan.rule().wide();
    }
  }
  EXPECT_EQ(steps, (std::set<int>{0, 1, 2, 4}));
  EXPECT_TRUE(rotated && axes && narrow && wide) << rotated << axes << narrow << wide;
}

}  // namespace
}  // namespace openvc::golden
