// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

// A model of a CUDA machine: kernels compiled by the host compiler, a fiber for every thread.
//
// The blocks of a cluster run at a time. Their threads take turns where they wait for each other:
// at barriers and in instructions that a warp executes together. Who goes on next, and when copies
// arrive, is up to a schedule; results must not depend on it.
namespace openvc::model {

inline constexpr int kWarpLanes = 32;
/// Largest shared memory of a block on Hopper.
inline constexpr std::size_t kSharedBytes = 227 * 1024;
/// What memory holds before anything is written: NaN in every format.
inline constexpr std::uint8_t kPoison = 0xFF;

/// A kernel did what no kernel may do: the message names the place.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

/// Coordinates of the thread that runs, under the names that kernels know.
struct Coordinates {
  Dim3 thread;
  Dim3 block;
  Dim3 block_size;
  Dim3 grid_size;
};
extern Coordinates coordinates;

/// What messages call the parts of a kernel.
struct Names {
  std::function<std::string(unsigned warp)> role;
  std::function<std::string(std::uint32_t offset)> barrier;  ///< by its place in shared memory
};

struct Grid {
  unsigned blocks = 1;
  unsigned threads = 1;
  std::size_t dynamic_shared_bytes = 0;
  const char* kernel = "kernel";  ///< for messages
  unsigned cluster_size = 1;      ///< divides `blocks`
  Names names{};
};

/// Whose turn it is.
enum class Turns {
  in_order,         ///< of the threads
  random,           ///< drawn from the seed
  one_warp_last,    ///< the same, but one warp waits while anybody else can go on
  one_block_first,  ///< the same, but one block of the cluster goes on while it can
};

/// When asynchronous copies are done: between their issue and what waits for them.
enum class Engines {
  eager,   ///< at once
  lazy,    ///< when nobody can go on without one
  random,  ///< drawn from the seed
};

struct Schedule {
  std::uint64_t seed = 0;
  Turns turns = Turns::in_order;
  Engines engines = Engines::eager;

  [[nodiscard]] std::string describe() const;
};
void set_schedule(const Schedule& schedule);

/// 0: in order, copies at once. Others: turns drawn from the seed, copies as late as they may.
void set_seed(std::uint64_t seed);

/// Runs `thread` in every thread of every block. Throws Fault, or what a thread throws.
void launch(const Grid& grid, const std::function<void()>& thread);

/// bar.sync 0: waits for all threads of the block that have not ended.
void synchronize_block();

/// barrier.cluster: arrive, and wait for all threads of the cluster that have not ended.
void arrive_at_cluster_barrier();
void wait_at_cluster_barrier();
[[nodiscard]] unsigned cluster_rank();

/// Operands of the lanes of a warp, null for lanes that take no part.
using Operands = std::array<void*, kWarpLanes>;

/// An instruction that the lanes of `mask` execute together: the last to arrive executes it. All of
/// them must name the same instruction.
void execute_together(unsigned mask, const char* instruction, void* operands,
                      void (*execute)(const Operands&));
/// One that the whole warp executes together and that concerns nobody else.
void execute_aligned(const char* instruction);

/// Lane of the thread that runs.
[[nodiscard]] int lane();

/// setmaxnreg: the warp takes registers from the pool of its block, and waits for them, or gives
/// some back.
void set_registers(int registers, bool more);

/// Static shared memory of a block: one object per key.
void* static_shared(const void* key, std::size_t bytes, std::size_t alignment);
void* dynamic_shared();
/// Address of shared memory in its 32-bit window, and back. `bytes` from there must be inside.
[[nodiscard]] std::uint32_t shared_address(const void* pointer);
[[nodiscard]] void* shared_pointer(std::uint32_t address, std::size_t bytes);
/// mapa: the same place in another block of the cluster.
[[nodiscard]] std::uint32_t map_address(std::uint32_t address, std::uint32_t rank);

/// Asynchronous copies of the thread that runs: in groups, at the latest when it waits for them.
void copy_asynchronously(void* destination, const void* source, std::size_t bytes, bool present);
void commit_copies();
void wait_for_copies(int pending_groups);

}  // namespace openvc::model
