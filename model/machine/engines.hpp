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

/// tcgen05.alloc, .dealloc and .relinquish_alloc_permit.
void allocate_columns(std::uint32_t columns, std::uint32_t shared_destination);
void free_columns(std::uint32_t address, std::uint32_t columns);
void relinquish_allocation();

/// tcgen05.ld or .st of a thread, shape 32x32b.
struct ColumnAccess {
  const char* instruction;
  std::uint32_t address;
  std::byte* registers;
  int count;           // of registers
  bool packs = false;  // a load puts the lower halves of two columns into a register
};
void load_columns(const ColumnAccess& access);
void store_columns(const ColumnAccess& access);
/// tcgen05.wait::ld, ::st, tcgen05.fence::before_thread_sync, ::after_thread_sync.
void wait_for_column_loads();
void wait_for_column_stores();
void fence_before_thread_sync();
void fence_after_thread_sync();

/// tcgen05.mma of a block: D[128, N] (+)= A[128, 32] B[32, N] in E4M3, D in tensor memory.
struct BlockProduct {
  const char* instruction;
  std::uint32_t d;  // address in tensor memory
  bool a_in_tensor_memory;
  std::uint64_t a;  // address there, or descriptor
  std::uint64_t b;
  std::uint32_t descriptor;
  bool accumulate;
};
void multiply(const BlockProduct& product);
/// tcgen05.commit: arrives at a barrier of this block, or at the one at its place in several.
void commit_block_products(const char* instruction, std::uint32_t barrier, std::uint16_t blocks);

}  // namespace openvc::model
