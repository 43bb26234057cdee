// SPDX-License-Identifier: BSD-3-Clause
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "cpu/aligned_buffer.hpp"
#include "cpu/attention_kernel.hpp"
#include "numerics/e4m3.hpp"

// The stages of the main loop on one thread, for every instruction set of this CPU, and the peak
// that they can be compared with. One iteration is one group of queries and one block of keys.
namespace openvc::cpu {
namespace {

using numerics::kHeadDim;
using numerics::kKeyBlock;

/// Key blocks that the stages go round: more than the L2 cache holds, as in a long sequence.
constexpr int kBlocks = 64;

class Stages {
 public:
  explicit Stages(const AttentionKernel& kernel)
      : kernel_(kernel),
        block_bytes_(kernel.word_bytes(kKeyBlock * kHeadDim)),
        blocks_(kBlocks * block_bytes_),
        queries_(kernel.word_bytes(kernel.group * kHeadDim)),
        probabilities_(kernel.word_bytes(kKeyBlock * kernel.group)),
        scores_(static_cast<std::size_t>(kKeyBlock * kernel.group)),
        accumulators_(static_cast<std::size_t>(kHeadDim * kernel.group)) {
    for (int block = 0; block < kBlocks; ++block) {
      fill(kKeyBlock, blocks_.data() + static_cast<std::size_t>(block) * block_bytes_);
    }
    AlignedBuffer<std::byte> rows(kernel.word_bytes(kernel.group * kHeadDim));
    fill(kernel.group, rows.data());
    kernel.pack_queries(rows.data(), kHeadDim, queries_.data());
    for (int i = 0; i < numerics::kQueryBlock; ++i) {
      rows_.set_row(i, numerics::empty_row(numerics::head_rule(0, false)));
    }
    for (int i = 0; i < kHeadDim * kernel.group; ++i) accumulators_.data()[i] = 0.0f;
  }

  void score() {
    next_ = (next_ + 1) % kBlocks;
    kernel_.score({.queries = queries_.data(),
                   .keys = block(),
                   .columns = kHeadDim,
                   .used_keys = kKeyBlock,
                   .fewest_visible = kKeyBlock,
                   .visible = nullptr,
                   .scores = scores_.data(),
                   .block_max = block_max_});
  }

  void cast(bool wide) {
    kernel_.cast({.scores = scores_.data(),
                  .block_max = block_max_,
                  .used_keys = kKeyBlock,
                  .rule = numerics::head_rule(0, wide),
                  .has_nan = false,
                  .repair = false,
                  .rows = &rows_,
                  .first_query = 0,
                  .probabilities = probabilities_.data()});
  }

  void accumulate() {
    next_ = (next_ + 1) % kBlocks;
    kernel_.accumulate({.values = block(),
                        .probabilities = probabilities_.data(),
                        .used_keys = kKeyBlock,
                        .weight = rows_.weight,
                        .rescale = nullptr,
                        .accumulators = accumulators_.data()});
  }

 private:
  [[nodiscard]] const std::byte* block() const {
    return blocks_.data() + static_cast<std::size_t>(next_) * block_bytes_;
  }

  /// Rows of random codes, decoded.
  void fill(int rows, std::byte* words) {
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * kHeadDim));
    for (std::uint8_t& code : codes) code = numerics::e4m3_encode(normal_(generator_));
    kernel_.decode(codes.data(), kHeadDim, rows, kHeadDim, words,
                   static_cast<std::int64_t>(kernel_.word_bytes(kHeadDim)));
  }

  const AttentionKernel& kernel_;
  std::mt19937 generator_{1};
  std::normal_distribution<float> normal_;
  int next_ = 0;
  std::size_t block_bytes_;
  AlignedBuffer<std::byte> blocks_;
  AlignedBuffer<std::byte> queries_;
  AlignedBuffer<std::byte> probabilities_;
  AlignedBuffer<float> scores_;
  AlignedBuffer<float> accumulators_;
  RowStates rows_{};
  alignas(kVectorAlignment) float block_max_[numerics::kQueryBlock];
};

void report_flops(benchmark::State& state, double flops) {
  state.counters["FLOP/s"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

double product_flops(const AttentionKernel& kernel) {
  return 2.0 * kernel.group * kKeyBlock * kHeadDim;
}

void score(benchmark::State& state, const AttentionKernel& kernel) {
  Stages stages(kernel);
  for (auto _ : state) stages.score();
  report_flops(state, product_flops(kernel));
}

void cast(benchmark::State& state, const AttentionKernel& kernel, bool wide) {
  Stages stages(kernel);
  stages.score();
  for (auto _ : state) stages.cast(wide);
}

void accumulate(benchmark::State& state, const AttentionKernel& kernel) {
  Stages stages(kernel);
  stages.score();
  stages.cast(false);
  for (auto _ : state) stages.accumulate();
  report_flops(state, product_flops(kernel));
}

void all_stages(benchmark::State& state, const AttentionKernel& kernel) {
  Stages stages(kernel);
  for (auto _ : state) {
    stages.score();
    stages.cast(false);
    stages.accumulate();
  }
  report_flops(state, 2.0 * product_flops(kernel));
}

#if defined(__x86_64__)
#define OPENVC_SIXTEEN_TIMES(instruction)                                               \
  instruction "0\n" instruction "1\n" instruction "2\n" instruction "3\n" instruction   \
              "4\n" instruction "5\n" instruction "6\n" instruction "7\n" instruction   \
              "8\n" instruction "9\n" instruction "10\n" instruction "11\n" instruction \
              "12\n" instruction "13\n" instruction "14\n" instruction "15\n"

/// Sixteen independent multiply-adds an iteration, without memory.
void peak_bf16(benchmark::State& state) {
  for (auto _ : state) {
    asm volatile(OPENVC_SIXTEEN_TIMES("vdpbf16ps %%zmm16, %%zmm17, %%zmm")::
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
  }
  report_flops(state, 16 * 64);
}

void peak_binary32(benchmark::State& state) {
  for (auto _ : state) {
    asm volatile(OPENVC_SIXTEEN_TIMES("vfmadd231ps %%zmm16, %%zmm17, %%zmm")::
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
  }
  report_flops(state, 16 * 32);
}
#endif

const bool kRegistered = [] {
  for (const AttentionKernel* kernel : all_attention_kernels()) {
    const std::string name = std::string("/") + kernel->name;
    const auto add = [&](const std::string& stage, auto run) {
      benchmark::RegisterBenchmark((stage + name).c_str(), run);
    };
    add("score", [kernel](benchmark::State& state) { score(state, *kernel); });
    add("cast", [kernel](benchmark::State& state) { cast(state, *kernel, false); });
    add("cast_wide", [kernel](benchmark::State& state) { cast(state, *kernel, true); });
    add("accumulate", [kernel](benchmark::State& state) { accumulate(state, *kernel); });
    add("all_stages", [kernel](benchmark::State& state) { all_stages(state, *kernel); });
  }
#if defined(__x86_64__)
  if (avx512_bf16_attention_kernel() != nullptr) {
    benchmark::RegisterBenchmark("peak/BF16", peak_bf16)->ThreadRange(1, 2)->UseRealTime();
    benchmark::RegisterBenchmark("peak/binary32", peak_binary32)->ThreadRange(1, 2)->UseRealTime();
  }
#endif
  return true;
}();

}  // namespace
}  // namespace openvc::cpu
