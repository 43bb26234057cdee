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
// A block runs at a time. Its threads take turns where they wait for each other: at barriers and in
// instructions that a warp executes together. Which of those that can go on goes on is drawn from a
// seed; results must not depend on it.
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

struct Grid {
  unsigned blocks = 1;
  unsigned threads = 1;
  std::size_t dynamic_shared_bytes = 0;
  const char* kernel = "kernel";  ///< for messages
};

/// How turns are taken: 0 in the order of the threads, others drawn from the seed. With a seed
/// copies to shared memory arrive as late as they may.
void set_seed(std::uint64_t seed);

/// Runs `thread` in every thread of every block. Throws Fault, or what a thread throws.
void launch(const Grid& grid, const std::function<void()>& thread);

/// bar.sync 0: waits for all threads of the block that have not ended.
void synchronize_block();

/// Operands of the lanes of a warp, null for lanes that take no part.
using Operands = std::array<void*, kWarpLanes>;

/// An instruction that the lanes of `mask` execute together: the last to arrive executes it. All of
/// them must name the same instruction.
void execute_together(unsigned mask, const char* instruction, void* operands,
                      void (*execute)(const Operands&));

/// Lane of the thread that runs.
[[nodiscard]] int lane();

/// Static shared memory of a block: one object per key.
void* static_shared(const void* key, std::size_t bytes, std::size_t alignment);
void* dynamic_shared();
/// Address of shared memory in its 32-bit window, and back. `bytes` from there must be inside.
[[nodiscard]] std::uint32_t shared_address(const void* pointer);
[[nodiscard]] void* shared_pointer(std::uint32_t address, std::size_t bytes);

/// Asynchronous copies of the thread that runs: in groups, at the latest when it waits for them.
void copy_asynchronously(void* destination, const void* source, std::size_t bytes, bool present);
void commit_copies();
void wait_for_copies(int pending_groups);

}  // namespace openvc::model
