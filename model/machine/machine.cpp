// SPDX-License-Identifier: BSD-3-Clause
#include "machine/machine.hpp"

#include <cstring>
#include <utility>

#include "machine/cluster.hpp"
#include "machine/mutation.hpp"

namespace openvc::model {

Coordinates coordinates;

namespace {

Schedule g_schedule;
Cluster* g_cluster = nullptr;

/// Makes a cluster the one that runs, for a scope.
class Running {
 public:
  explicit Running(Cluster& cluster) { g_cluster = &cluster; }
  ~Running() { g_cluster = nullptr; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
};

void check_grid(const Grid& grid) {
  const std::string name = grid.kernel;
  if (grid.dynamic_shared_bytes > kSharedBytes) {
    throw Fault(name + ": " + std::to_string(grid.dynamic_shared_bytes) +
                " bytes of dynamic shared memory; a block has " + std::to_string(kSharedBytes));
  }
  if (grid.cluster_size == 0 || grid.blocks % grid.cluster_size != 0) {
    throw Fault(name + ": " + std::to_string(grid.blocks) + " blocks in clusters of " +
                std::to_string(grid.cluster_size));
  }
}

}  // namespace

Cluster& cluster() {
  if (g_cluster == nullptr) throw Fault("an instruction of a kernel outside of a launch");
  return *g_cluster;
}

void fail(const std::string& text) { throw Fault(cluster().where() + ": " + text); }

void fail_engine(const char* what, unsigned issuer, const std::string& text) {
  throw Fault(std::string(cluster().grid().kernel) + ": " + what + " of " +
              cluster().describe_warp(issuer) + ": " + text);
}

void set_schedule(const Schedule& schedule) { g_schedule = schedule; }

void set_seed(std::uint64_t seed) {
  g_schedule = seed == 0 ? Schedule{} : Schedule{seed, Turns::random, Engines::lazy};
}

void launch(const Grid& grid, const std::function<void()>& thread) {
  check_grid(grid);
  for (unsigned first = 0; first < grid.blocks; first += grid.cluster_size) {
    Cluster cluster(grid, first, g_schedule, thread);
    const Running running(cluster);
    cluster.run();
  }
}

void synchronize_block() { cluster().synchronize_block(); }
void arrive_at_cluster_barrier() { cluster().arrive_at_cluster_barrier(); }
void wait_at_cluster_barrier() { cluster().wait_at_cluster_barrier(); }
unsigned cluster_rank() { return cluster().rank(); }

void execute_together(unsigned mask, const char* instruction, void* operands,
                      void (*execute)(const Operands&)) {
  cluster().meet(mask, instruction, operands, execute);
}

void execute_aligned(const char* instruction) {
  if (is_mutated(Mutation::Kind::skip, instruction)) return;
  char unused = 0;
  cluster().meet(~0u, instruction, &unused, [](const Operands&) {});
}

int lane() { return static_cast<int>(cluster().thread_in_block() % kWarpLanes); }

void set_registers(int registers, bool more) { cluster().set_registers(registers, more); }

// ---- shared memory ------------------------------------------------------------------------------

namespace {

std::uint32_t offset_of(const void* pointer, std::size_t bytes) {
  const auto offset = cluster().block().shared.offset_of(pointer, bytes);
  if (!offset) fail("an address outside of shared memory is used as one inside");
  return *offset;
}

}  // namespace

void* static_shared(const void* key, std::size_t bytes, std::size_t alignment) {
  void* object = cluster().block().shared.static_object(key, bytes, alignment);
  if (object == nullptr) {
    fail("more than " + std::to_string(kSharedBytes) + " bytes of shared memory in a block");
  }
  return object;
}

void* dynamic_shared() { return cluster().block().shared.data(); }

std::uint32_t shared_address(const void* pointer) { return kWindowBase + offset_of(pointer, 1); }

void* shared_pointer(std::uint32_t address, std::size_t bytes) {
  const std::uint32_t offset = address - kWindowBase;
  if (!SharedMemory::is_inside(offset, bytes)) {
    fail("an address outside of shared memory is used as one inside");
  }
  return cluster().block().shared.data() + offset;
}

std::uint32_t map_address(std::uint32_t address, std::uint32_t rank) {
  if (rank >= cluster().size()) {
    fail("mapa: rank " + std::to_string(rank) + " in a cluster of " +
         std::to_string(cluster().size()));
  }
  return (address & ((1u << kWindowBits) - 1)) | (rank + 1) << kWindowBits;
}

// ---- copies that a thread waits for itself ------------------------------------------------------

void copy_asynchronously(void* destination, const void* source, std::size_t bytes, bool present) {
  const std::uint32_t offset = offset_of(destination, bytes);
  if (is_mutated(Mutation::Kind::skip, "cp.async")) return;
  Copy copy{destination, present ? source : nullptr, bytes};
  // Where barriers may count copies, it is known which bytes are on their way.
  if (cluster().block().shared.is_used_by_engines()) {
    claim("cp.async", cluster().rank(), offset, static_cast<std::uint32_t>(bytes));
  }
  std::memset(destination, kPoison, bytes);
  if (cluster().schedule().engines == Engines::eager) {
    copy.perform();
    copy.is_done = true;
  }
  cluster().self().open_copies.push_back(copy);
}

void commit_copies() {
  Thread& thread = cluster().self();
  thread.copy_groups.push_back(std::move(thread.open_copies));
  thread.open_copies.clear();
}

void wait_for_copies(int pending_groups) {
  auto& groups = cluster().self().copy_groups;
  while (static_cast<int>(groups.size()) > pending_groups) {
    finish_copies(groups.front());
    groups.pop_front();
  }
}

}  // namespace openvc::model
