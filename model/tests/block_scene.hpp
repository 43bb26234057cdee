// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "cuda/ptx/tcgen05.cuh"
#include "cuda/ptx/tensor_memory.cuh"
#include "product_operands.hpp"
#include "run_kernel.hpp"

// A kernel for one product of a block (tcgen05), of which a test writes the middle.
namespace openvc::model {

inline constexpr int kSceneRows = 128;
inline constexpr int kSceneColumns = 256;
inline constexpr unsigned kSceneThreads = 128;

struct alignas(1024) BlockShared {
  std::array<std::uint8_t, std::size_t{kSceneRows} * kDepth> a;
  alignas(1024) std::array<std::uint8_t, std::size_t{kSceneColumns} * kDepth> b;
  std::uint64_t full;
  std::uint64_t done;
  std::uint32_t columns;
};

/// What a kernel of the test works with.
struct BlockScene {
  BlockShared& shared;
  std::uint32_t d;     // address in tensor memory
  std::uint32_t mine;  // the same, of the lanes of the warp
  std::uint64_t a;
  std::uint64_t b;
  bool issues;  // the thread that issues
  std::uint32_t done;

  void commit_and_wait() const {
    if (issues) ptx::tcgen05_commit(done);
    ptx::mbarrier_wait(done, 0);
    ptx::tcgen05_fence_after_thread_sync();
  }
};

inline constexpr std::uint32_t kProduct =
    ptx::instruction_descriptor(ptx::AccumulatorType::binary32, kSceneRows, 32);

template <ptx::Swizzle kSwizzle>
std::string run_block_scene(const Operand& a, const Operand& b, const Schedule& schedule,
                            const std::function<void(BlockScene)>& body) {
  const CUtensorMap a_map = a.map();
  const CUtensorMap b_map = b.map();
  const auto kernel = [&] {
    auto& s = ptx::static_shared<BlockShared>();
    const std::uint32_t full = ptx::shared_address(&s.full);
    const std::uint32_t done = ptx::shared_address(&s.done);
    if (threadIdx.x < 32) ptx::tcgen05_alloc<512>(ptx::shared_address(&s.columns));
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(full, 1);
      ptx::mbarrier_init(done, 1);
      ptx::fence_mbarrier_init();
      ptx::mbarrier_arrive_expect_tx(full,
                                     a_map.box[0] * a_map.box[1] + b_map.box[0] * b_map.box[1]);
      ptx::cp_async_bulk_tensor_3d(ptx::shared_address(s.a.data()), &a_map, full, 0, 0, 0);
      ptx::cp_async_bulk_tensor_3d(ptx::shared_address(s.b.data()), &b_map, full, 0, 0, 0);
    }
    __syncthreads();
    ptx::mbarrier_wait(full, 0);
    const auto tile = [](const void* data) {
      return ptx::tcgen05_matrix_descriptor<kSwizzle>(ptx::shared_address(data));
    };
    body({.shared = s,
          .d = s.columns,
          .mine = s.columns + threadIdx.x / 32 * 32 * ptx::kTensorMemoryLane,
          .a = tile(s.a.data()),
          .b = tile(s.b.data()),
          .issues = threadIdx.x == 0,
          .done = done});
    __syncthreads();
    if (threadIdx.x < 32) ptx::tcgen05_dealloc<512>(s.columns);
  };
  return fault_of({.threads = kSceneThreads}, schedule, kernel);
}

inline std::string fault_of_product(const std::function<void(BlockScene)>& body) {
  return run_block_scene<ptx::Swizzle::bytes_128>(Operand(kSceneRows, kDepth, 1),
                                                  Operand(32, kDepth, 2),
                                                  {0, Turns::in_order, Engines::lazy}, body);
}

inline void multiply_once(const BlockScene& s) {
  if (s.issues) ptx::tcgen05_mma_f8f6f4_ss(s.d, s.a, s.b, kProduct, false);
}

}  // namespace openvc::model
