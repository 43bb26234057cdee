// SPDX-License-Identifier: BSD-3-Clause
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <vector>

#include "numerics/contract.hpp"
#include "numerics/half.hpp"
#include "openvc/attention.hpp"

// Whole calls through the public interface, self-attention of BF16 tensors. Arguments: tokens,
// heads. Time is wall time; CPU is that of all threads together.
namespace openvc {
namespace {

using numerics::kHeadDim;

/// A contiguous [1, S, H, D] tensor of normal numbers.
class RandomTensor {
 public:
  RandomTensor(std::int64_t tokens, std::int64_t heads, unsigned seed)
      : elements_(static_cast<std::size_t>(tokens * heads * kHeadDim)) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (std::uint16_t& element : elements_) {
      element = numerics::float_to_bfloat16(normal(generator));
    }
    view_.data = elements_.data();
    view_.shape = {1, tokens, heads, kHeadDim};
    view_.strides = contiguous_strides(view_.shape);
  }

  [[nodiscard]] TensorView view() const { return view_.view(); }
  [[nodiscard]] const MutableTensorView& mutable_view() const { return view_; }

 private:
  std::vector<std::uint16_t> elements_;
  MutableTensorView view_;
};

struct Inputs {
  explicit Inputs(const benchmark::State& state)
      : q(state.range(0), state.range(1), 1),
        k(state.range(0), state.range(1), 2),
        v(state.range(0), state.range(1), 3),
        out(state.range(0), state.range(1), 4) {}

  RandomTensor q;
  RandomTensor k;
  RandomTensor v;
  RandomTensor out;
};

/// 4 S^2 H D floating-point operations, whatever the algorithm really does.
void report_flops(benchmark::State& state, double share = 1.0) {
  const auto tokens = static_cast<double>(state.range(0));
  const auto heads = static_cast<double>(state.range(1));
  state.counters["FLOP/s"] = benchmark::Counter(share * 4.0 * tokens * tokens * heads * kHeadDim,
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void prepared_attention(benchmark::State& state, const AttentionOptions& options, double share) {
  const Inputs in(state);
  const Prepared prepared = prepare(in.q.view(), in.k.view(), in.v.view(), options);
  for (auto _ : state) attention_prepared(prepared, in.out.mutable_view());
  report_flops(state, share);
}

void BM_AttentionPrepared(benchmark::State& state) { prepared_attention(state, {}, 1.0); }

void BM_AttentionPreparedCausal(benchmark::State& state) {
  AttentionOptions options;
  options.mask = Mask::causal;
  prepared_attention(state, options, 0.5);
}

void BM_AttentionComplete(benchmark::State& state) {
  const Inputs in(state);
  for (auto _ : state) {
    attention(in.q.view(), in.k.view(), in.v.view(), in.out.mutable_view());
  }
  report_flops(state);
}

void BM_Prepare(benchmark::State& state) {
  const Inputs in(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(prepare(in.q.view(), in.k.view(), in.v.view()));
  }
  state.SetBytesProcessed(state.iterations() * 3 * state.range(0) * state.range(1) * kHeadDim *
                          static_cast<std::int64_t>(sizeof(std::uint16_t)));
}

/// 64 rows of every head: one column of the error study.
void BM_ExactAttention(benchmark::State& state) {
  constexpr std::int64_t kRows = 64;
  const Inputs in(state);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < kRows; ++i) rows.push_back(i * state.range(0) / kRows);
  std::vector<double> out(static_cast<std::size_t>(kRows * state.range(1) * kHeadDim));
  for (auto _ : state) {
    exact_attention(in.q.view(), in.k.view(), in.v.view(), rows, out.data());
  }
  report_flops(state, static_cast<double>(kRows) / static_cast<double>(state.range(0)));
}

void shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Args({1024, 8})->Args({4096, 8})->Args({16384, 2});
  benchmark->UseRealTime()->MeasureProcessCPUTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(BM_AttentionPrepared)->Apply(shapes);
BENCHMARK(BM_AttentionPreparedCausal)->Apply(shapes);
BENCHMARK(BM_AttentionComplete)->Apply(shapes);
BENCHMARK(BM_Prepare)->Apply(shapes);
BENCHMARK(BM_ExactAttention)->Apply(shapes);

}  // namespace
}  // namespace openvc
