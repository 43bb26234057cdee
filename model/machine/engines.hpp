// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

// What works beside the threads: TMA, which copies, and the tensor cores of a warpgroup.
namespace openvc::model {

/// A tile of a three-dimensional byte tensor, innermost dimension first. What CUDA encodes in a
/// CUtensorMap.
struct TensorMap {
  const std::byte* data = nullptr;
  std::uint64_t shape[3] = {};
  std::uint64_t strides[2] = {};  // of the outer dimensions, bytes
  std::uint32_t box[3] = {};
  std::uint32_t swizzle_bytes = 0;  // span of the swizzle: 32, 64 or 128
};

struct TileCopy {
  const char* instruction;
  std::uint32_t destination;  // address in shared memory
  std::uint32_t barrier;
  std::uint16_t blocks;  // ranks in the cluster that get the tile, one bit each; 0: this block
  int coordinates[3];
};

/// cp.async.bulk.tensor: elements outside of the tensor are zero.
void copy_tile(const TensorMap& map, const TileCopy& copy);
/// cp.async.bulk, global to shared memory.
void copy_bulk(std::uint32_t destination, const void* source, std::uint32_t bytes,
               std::uint32_t barrier);

/// fence.proxy.async: what was stored before can be read by tensor cores and TMA.
void fence_proxy();

/// wgmma of a thread: D[64, columns] (+)= A[64, 32] B[32, columns] in E4M3.
struct Product {
  enum class Sum { binary16, binary32 };
  const char* instruction;
  int columns;
  Sum sum;
  std::byte* d;            // registers: columns / 4 of pairs of binary16, or columns / 2
  const std::uint32_t* a;  // four registers, or null: A is in shared memory
  std::uint64_t a_descriptor;
  std::uint64_t b_descriptor;
  bool accumulate;
};
void multiply(const Product& product);
void fence_products();
void commit_products();
void wait_for_products(int pending_groups);

}  // namespace openvc::model
