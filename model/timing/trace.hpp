// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

// What the warps of a launch do, without a time: recorded from a kernel that the model runs
// (recorder.hpp), or written by hand for a schedule that nobody has compiled (schedules/).
namespace openvc::timing {

/// Where a warp's instructions execute. Rates and latencies are constants of a machine.
enum class Pipe : std::uint8_t {
  fma,       // FFMA, FMUL, FADD
  fma_pair,  // FFMA2: two of them
  half,      // HFMA2
  half_add,  // HADD2, and binary16 to binary32
  maximum,   // packed binary16 or three-operand binary32 maxima
  alu,       // PRMT, integer, logic
  convert,   // F2FP and its like
  special,   // MUFU
  exchange,  // SHFL
  vote,
  other,  // an issue slot and no more: addresses, descriptors, branches
};
inline constexpr std::size_t kPipes = 11;
const char* pipe_name(Pipe pipe);

/// Instructions of a warp between two other steps. They are taken to be mixed.
using Work = std::array<double, kPipes>;
inline double& of(Work& work, Pipe pipe) { return work[static_cast<std::size_t>(pipe)]; }
inline double of(const Work& work, Pipe pipe) { return work[static_cast<std::size_t>(pipe)]; }

/// What an operation of an engine tells a barrier when it is done.
struct Signal {
  int barrier = 0;
  int arrivals = 0;
  double bytes = 0;
};

struct Step {
  enum class Kind : std::uint8_t {
    work,         // instructions
    wait,         // for so many completed phases of a barrier
    arrive,       // at a barrier, and expect bytes there
    start,        // an operation of an engine; the warp goes on
    commit,       // operations since the last commit form a group
    wait_groups,  // until at most `count` groups run
    mark,         // a place that the report names
  };
  Kind kind = Kind::work;
  int barrier = 0;
  std::int64_t count = 0;  // phases, arrivals, or groups
  double amount = 0;       // bytes that are expected, or units of an operation
  int name = 0;            // of an operation or a mark: index into Trace::names
  Work work{};
  std::vector<Signal> signals;
};

struct TraceBarrier {
  std::string name;
  int block = 0;
  int arrivals = 1;  // of a phase
};

struct TraceWarp {
  std::string role;
  int block = 0;
  int scheduler = 0;
  std::vector<Step> steps;
};

struct Trace {
  std::string name;
  std::vector<std::string> names;
  std::vector<TraceBarrier> barriers;
  std::vector<TraceWarp> warps;

  int name_index(const std::string& text);
  int add_barrier(std::string barrier_name, int block, int arrivals);
};

/// Writes the steps of one warp.
class Writer {
 public:
  Writer(Trace& trace, std::string role, int block, int scheduler);

  Writer& work(Pipe pipe, double instructions);
  Writer& wait(int barrier, std::int64_t phases);
  Writer& arrive(int barrier, double bytes = 0, int arrivals = 1);
  Writer& start(const std::string& operation, double amount = 1, std::vector<Signal> signals = {});
  Writer& commit();
  Writer& wait_groups(int pending);
  Writer& mark(const std::string& name);

 private:
  Step& add(Step::Kind kind);

  Trace& trace_;
  std::size_t warp_;
};

}  // namespace openvc::timing
