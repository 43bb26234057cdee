// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>

#include "machine/access.hpp"
#include "machine/cluster.hpp"
#include "machine/mutation.hpp"
#include "machine/recorder.hpp"

// What kernels call of tensor memory: instructions of warps, and fences of threads.
namespace openvc::model {
namespace {

constexpr const char* kAllocate = "tcgen05.alloc";
constexpr const char* kFree = "tcgen05.dealloc";
constexpr const char* kRelinquish = "tcgen05.relinquish_alloc_permit";
constexpr const char* kWaitForLoads = "tcgen05.wait::ld";
constexpr const char* kWaitForStores = "tcgen05.wait::st";
constexpr const char* kFenceBefore = "tcgen05.fence::before_thread_sync";
constexpr const char* kFenceAfter = "tcgen05.fence::after_thread_sync";

struct Columns {
  std::uint32_t count;
  std::uint32_t address;  // of the columns, or where to store theirs
};

/// Operands of the lanes, which must be the same.
Columns columns_of(const Operands& lanes, const char* instruction) {
  const auto& first = *static_cast<const Columns*>(lanes[0]);
  for (const void* lane : lanes) {
    const auto& mine = *static_cast<const Columns*>(lane);
    if (mine.count != first.count || mine.address != first.address) {
      fail(std::string(instruction) + ": lanes of the warp have unlike operands");
    }
  }
  return first;
}

/// Executes what concerns the tensor memory of the block with the whole warp.
template <class Execute>
void execute_on_memory(const char* instruction, Execute) {
  if (is_mutated(Mutation::Kind::skip, instruction)) return;
  char unused = 0;
  execute_together(~0u, instruction, &unused, [](const Operands&) { Execute{}(tensor_memory()); });
}

}  // namespace

void allocate_columns(std::uint32_t columns, std::uint32_t shared_destination) {
  Columns mine{columns + static_cast<std::uint32_t>(mutation_amount(kAllocate)),
               shared_destination};
  execute_together(~0u, kAllocate, &mine, [](const Operands& lanes) {
    const Columns wanted = columns_of(lanes, kAllocate);
    void* target = shared_pointer(wanted.address, sizeof(std::uint32_t));
    if (wanted.address % sizeof(std::uint32_t) != 0) {
      fail(std::string(kAllocate) + ": an address at " + hexadecimal(wanted.address) +
           ", no multiple of 4");
    }
    const std::uint32_t first = tensor_memory().allocate(wanted.count);
    observe_shared({target, sizeof(first), true});
    std::memcpy(target, &first, sizeof(first));
  });
}

void free_columns(std::uint32_t address, std::uint32_t columns) {
  if (is_mutated(Mutation::Kind::skip, kFree)) return;
  Columns mine{columns, address};
  execute_together(~0u, kFree, &mine, [](const Operands& lanes) {
    const Columns given = columns_of(lanes, kFree);
    tensor_memory().free(given.address, given.count);
  });
}

void relinquish_allocation() {
  execute_on_memory(kRelinquish, [](TensorMemory& memory) { memory.relinquish(); });
}

namespace {

void record_access(const Operands& lanes) {
  if (Recorder* watcher = recorder()) {
    watcher->column_access(cluster().warp_party(),
                           static_cast<ColumnAccess*>(lanes[0])->instruction);
  }
}

void record_wait() {
  if (Recorder* watcher = recorder()) watcher->wait_for_column_accesses(cluster().warp_party());
}

}  // namespace

void load_columns(const ColumnAccess& access) {
  ColumnAccess mine = access;
  mine.address += static_cast<std::uint32_t>(mutation_amount(access.instruction));
  execute_together(~0u, access.instruction, &mine, [](const Operands& lanes) {
    record_access(lanes);
    tensor_memory().load(lanes);
  });
}

void store_columns(const ColumnAccess& access) {
  ColumnAccess mine = access;
  mine.address += static_cast<std::uint32_t>(mutation_amount(access.instruction));
  execute_together(~0u, access.instruction, &mine, [](const Operands& lanes) {
    record_access(lanes);
    tensor_memory().store(lanes);
  });
}

void wait_for_column_loads() {
  execute_on_memory(kWaitForLoads, [](TensorMemory& memory) {
    record_wait();
    memory.wait_for_loads();
  });
}

void wait_for_column_stores() {
  execute_on_memory(kWaitForStores, [](TensorMemory& memory) {
    record_wait();
    memory.order().complete(TensorDeed::Kind::store);
  });
}

void fence_before_thread_sync() {
  if (is_mutated(Mutation::Kind::skip, kFenceBefore)) return;
  tensor_memory().order().fence_before();
}

void fence_after_thread_sync() {
  if (is_mutated(Mutation::Kind::skip, kFenceAfter)) return;
  tensor_memory().order().fence_after();
}

}  // namespace openvc::model
