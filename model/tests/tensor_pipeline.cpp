// SPDX-License-Identifier: BSD-3-Clause
#include "tensor_pipeline.hpp"

#include <cstddef>
#include <cstring>

namespace openvc::model {
namespace {

constexpr std::uint32_t kScoreProduct = ptx::instruction_descriptor(
    ptx::AccumulatorType::binary16, TensorPipeline::kRows, TensorPipeline::kTileKeys);
constexpr std::uint32_t kSumProduct = ptx::instruction_descriptor(
    ptx::AccumulatorType::binary32, TensorPipeline::kRows, TensorPipeline::kOutputs);
constexpr int kSteps = kDepth / 32;

std::string role(unsigned warp) {
  return warp == TensorPipeline::kIssuer   ? "issuer"
         : warp == TensorPipeline::kLoader ? "loader"
                                           : "softmax";
}

std::string barrier_name(std::uint32_t offset) {
  using Storage = TensorPipeline::Storage;
  constexpr const char* kNames[] = {"start",          "key_full",     "key_empty", "scores_full[0]",
                                    "scores_full[1]", "weights_full", "sums_full"};
  const std::size_t index = (offset - offsetof(Storage, start)) / sizeof(std::uint64_t);
  return index < std::size(kNames) ? kNames[index] : "no barrier";
}

template <class T>
std::uint64_t tile(const T& bytes, int step) {
  return ptx::advance_descriptor(
      ptx::tcgen05_matrix_descriptor<ptx::Swizzle::bytes_128>(ptx::shared_address(bytes.data())),
      static_cast<std::uint32_t>(32 * step));
}

std::uint32_t address(const std::uint64_t& barrier) { return ptx::shared_address(&barrier); }

}  // namespace

void TensorPipeline::load_keys(Storage& s, const CUtensorMap& map) const {
  if (ptx::cluster_ctarank() != 0 || !ptx::elect_sync()) return;
  const auto all = static_cast<std::uint16_t>((1u << cluster_size_) - 1);
  for (int i = 0; i < kTiles; ++i) {
    if (i > 0) ptx::mbarrier_wait(address(s.key_empty), static_cast<std::uint32_t>(i - 1) % 2);
    for (unsigned rank = 0; rank < cluster_size_; ++rank) {
      ptx::mbarrier_arrive_expect_tx_cluster(ptx::mapa(address(s.key_full), rank), sizeof(s.keys));
    }
    ptx::cp_async_bulk_tensor_3d_multicast(ptx::shared_address(s.keys.data()), &map,
                                           address(s.key_full), all, 0, i * kTileKeys, 0);
  }
}

void TensorPipeline::issue_scores(Storage& s, int i) const {
  ptx::mbarrier_wait(address(s.key_full), static_cast<std::uint32_t>(i % 2));
  for (int step = 0; step < kSteps; ++step) {
    ptx::tcgen05_mma_f8f6f4_ss(s.columns + kScores[i % 2], tile(s.queries, step),
                               tile(s.keys, step), kScoreProduct, step != 0);
  }
  ptx::tcgen05_commit(address(s.scores_full[i % 2]));
  ptx::tcgen05_commit_multicast(address(s.key_empty),
                                static_cast<std::uint16_t>((1u << cluster_size_) - 1));
}

void TensorPipeline::issue(Storage& s) const {
  if (!ptx::elect_sync()) return;
  ptx::mbarrier_wait(address(s.start), 0);
  issue_scores(s, 0);
  for (int i = 0; i < kTiles; ++i) {
    if (i + 1 < kTiles) issue_scores(s, i + 1);
    ptx::mbarrier_wait(address(s.weights_full), static_cast<std::uint32_t>(i % 2));
    ptx::tcgen05_fence_after_thread_sync();
    for (int step = 0; step < kSteps; ++step) {
      ptx::tcgen05_mma_f8f6f4_ts(s.columns + kSums,
                                 s.columns + kWeights + static_cast<std::uint32_t>(8 * step),
                                 tile(s.values, step), kSumProduct, i != 0 || step != 0);
    }
    ptx::tcgen05_commit(address(s.sums_full));
  }
}

void TensorPipeline::softmax(Storage& s) {
  const std::size_t row = block_rows() + threadIdx.x;
  const std::uint32_t quarter = s.columns + threadIdx.x / 32 * 32 * ptx::kTensorMemoryLane;
  for (int i = 0; i < kTiles; ++i) {
    ptx::mbarrier_wait(address(s.scores_full[i % 2]), static_cast<std::uint32_t>(i / 2 % 2));
    ptx::tcgen05_fence_after_thread_sync();
    std::uint32_t pairs[64];
    ptx::tcgen05_ld_32x32b_x64_pack_16b(pairs, quarter + kScores[i % 2]);
    ptx::tcgen05_wait_ld();
    for (std::size_t j = 0; j < kTileKeys; ++j) {
      const auto bits = static_cast<std::uint16_t>(pairs[j / 2] >> (16 * (j % 2)));
      scores[(row * kTiles + static_cast<std::size_t>(i)) * kTileKeys + j] =
          numerics::half_to_float(bits);
    }
    std::uint32_t weights[32];
    std::memcpy(weights, weights_[static_cast<std::size_t>(i)].data() + threadIdx.x * kTileKeys,
                sizeof(weights));
    if (i > 0) {
      ptx::mbarrier_wait(address(s.sums_full), static_cast<std::uint32_t>(i - 1) % 2);
      ptx::tcgen05_fence_after_thread_sync();
    }
    ptx::tcgen05_st_32x32b_x32(quarter + kWeights, weights);
    ptx::tcgen05_wait_st();
    ptx::tcgen05_fence_before_thread_sync();
    ptx::mbarrier_arrive(address(s.weights_full));
  }
  ptx::mbarrier_wait(address(s.sums_full), (kTiles - 1) % 2);
  ptx::tcgen05_fence_after_thread_sync();
  float* out = sums.data() + row * kOutputs;
  for (std::uint32_t j = 0; j < 128; j += 32) {
    float values[32];
    ptx::tcgen05_ld_32x32b_x32(values, quarter + kSums + j);
    ptx::tcgen05_wait_ld();
    std::memcpy(out + j, values, sizeof(values));
  }
  float first[8];
  float second[8];
  ptx::tcgen05_ld_32x32b_x8(first, quarter + kSums + 128);
  ptx::tcgen05_ld_32x32b_x8(second, quarter + kSums + 136);
  ptx::tcgen05_wait_ld();
  std::memcpy(out + 128, first, sizeof(first));
  std::memcpy(out + 136, second, sizeof(second));
}

void TensorPipeline::thread(const CUtensorMap& queries, const CUtensorMap& keys,
                            const CUtensorMap& values) {
  auto& s = ptx::static_shared<Storage>();
  const unsigned warp_index = threadIdx.x / 32;
  if (warp_index == kIssuer) {
    ptx::tcgen05_alloc<kColumns>(ptx::shared_address(&s.columns));
    ptx::tcgen05_relinquish_alloc_permit();
  }
  if (threadIdx.x == 0) {
    for (std::uint64_t* barrier :
         {&s.start, &s.key_full, &s.scores_full[0], &s.scores_full[1], &s.sums_full}) {
      ptx::mbarrier_init(address(*barrier), 1);
    }
    ptx::mbarrier_init(address(s.key_empty), cluster_size_);
    ptx::mbarrier_init(address(s.weights_full), kRows);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(address(s.start), sizeof(s.queries) + sizeof(s.values));
    ptx::cp_async_bulk_tensor_3d(ptx::shared_address(s.queries.data()), &queries, address(s.start),
                                 0, 0, 0);
    ptx::cp_async_bulk_tensor_3d(ptx::shared_address(s.values.data()), &values, address(s.start), 0,
                                 0, 0);
  }
  __syncthreads();
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
  if (warp_index < kSoftmaxWarps) softmax(s);
  if (warp_index == kIssuer) issue(s);
  if (warp_index == kLoader) load_keys(s, keys);
  __syncthreads();
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
  if (warp_index == kIssuer) ptx::tcgen05_dealloc<kColumns>(s.columns);
}

std::string TensorPipeline::run(const Schedule& schedule) {
  scores.assign(std::size_t{cluster_size_} * kRows * kTiles * kTileKeys, -1.0f);
  sums.assign(std::size_t{cluster_size_} * kRows * kOutputs, -1.0f);
  const CUtensorMap queries = queries_.map();
  const CUtensorMap keys = keys_.map(kTileKeys);
  const CUtensorMap values = values_.map();
  Grid grid{.blocks = cluster_size_, .threads = kThreads, .cluster_size = cluster_size_};
  grid.names = {role, barrier_name};
  return fault_of(grid, schedule, [&] { thread(queries, keys, values); });
}

std::vector<float> TensorPipeline::expected_scores() const {
  std::vector<float> all;
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kTiles * kTileKeys; ++j) {
      float sum = 0.0f;  // rounded after every step
      for (int k = 0; k < kDepth; k += 32) {
        sum = numerics::half_to_float(numerics::float_to_half(
            static_cast<float>(double{sum} + queries_.dot(i, keys_, j, k, 32))));
      }
      all.push_back(sum);
    }
  }
  return of_all_blocks(all);
}

std::vector<float> TensorPipeline::expected_sums() const {
  std::vector<float> all;
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kOutputs; ++j) {
      float sum = 0.0f;
      for (const Operand& weights : weights_) {
        for (int k = 0; k < kTileKeys; k += 32) {
          sum = static_cast<float>(double{sum} + weights.dot(i, values_, j, k, 32));
        }
      }
      all.push_back(sum);
    }
  }
  return of_all_blocks(all);
}

/// Blocks have the same operands.
std::vector<float> TensorPipeline::of_all_blocks(const std::vector<float>& one) const {
  std::vector<float> all;
  for (unsigned block = 0; block < cluster_size_; ++block) {
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

}  // namespace openvc::model
