// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/ptx/tcgen05.cuh"
#include "cuda/ptx/tensor_memory.cuh"
#include "numerics/half.hpp"
#include "product_operands.hpp"
#include "run_kernel.hpp"

// A small kernel with all that tcgen05 has: scores of three tiles of keys in two buffers (A and B
// in shared memory, sums of binary16), weights that softmax warps store in tensor memory, and their
// products with values (sums of binary32). One warp issues, one loads keys; blocks of a cluster
// share them.
namespace openvc::model {

class TensorPipeline {
 public:
  static constexpr int kRows = 128;
  static constexpr int kTileKeys = 128;
  static constexpr int kTiles = 3;
  static constexpr int kOutputs = 144;
  static constexpr unsigned kSoftmaxWarps = 4;
  static constexpr unsigned kIssuer = 4;  // warps
  static constexpr unsigned kLoader = 5;
  static constexpr unsigned kThreads = 6 * 32;
  // Columns of tensor memory.
  static constexpr std::uint32_t kScores[] = {0, 320};
  static constexpr std::uint32_t kWeights = 128;
  static constexpr std::uint32_t kSums = 160;
  static constexpr int kColumns = 512;

  struct alignas(1024) Storage {
    std::array<std::uint8_t, std::size_t{kRows} * kDepth> queries;
    alignas(1024) std::array<std::uint8_t, std::size_t{kTileKeys} * kDepth> keys;
    alignas(1024) std::array<std::uint8_t, std::size_t{kOutputs} * kTileKeys> values;
    std::uint64_t start;  // queries and values
    std::uint64_t key_full;
    std::uint64_t key_empty;
    std::uint64_t scores_full[2];
    std::uint64_t weights_full;
    std::uint64_t sums_full;
    std::uint32_t columns;
  };

  explicit TensorPipeline(unsigned cluster_size = 1) : cluster_size_(cluster_size) {}

  /// The message of the fault that it ends with, "" without one; results of every block.
  std::string run(const Schedule& schedule);

  [[nodiscard]] std::vector<float> expected_scores() const;  // of all tiles
  [[nodiscard]] std::vector<float> expected_sums() const;

  std::vector<float> scores;
  std::vector<float> sums;

 private:
  void softmax(Storage& s);
  void issue_scores(Storage& s, int i) const;
  void issue(Storage& s) const;
  void load_keys(Storage& s, const CUtensorMap& map) const;
  void thread(const CUtensorMap& queries, const CUtensorMap& keys, const CUtensorMap& values);
  [[nodiscard]] std::vector<float> of_all_blocks(const std::vector<float>& one) const;
  [[nodiscard]] std::size_t block_rows() const { return std::size_t{blockIdx.x} * kRows; }

  unsigned cluster_size_;
  Operand queries_{kRows, kDepth, 11};
  Operand keys_{kTiles * kTileKeys, kDepth, 12};
  Operand values_{kOutputs, kTileKeys, 13};
  std::array<Operand, kTiles> weights_{Operand(kRows, kTileKeys, 14), Operand(kRows, kTileKeys, 15),
                                       Operand(kRows, kTileKeys, 16)};
};

}  // namespace openvc::model
