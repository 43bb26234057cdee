// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "timing/trace.hpp"

// What the parts of a chip take, in clocks of its multiprocessors. A file for each chip in chips/:
// every number with its unit and where it comes from.
namespace openvc::timing {

struct Constant {
  double value = 0;
  const char* unit = "";
  const char* source = "";
};

/// A class of instructions on a scheduler.
struct PipeConstants {
  int unit = 0;       // classes of one unit share it
  Constant interval;  // between two warp instructions
  Constant stall;     // that the warp waits after one, where the compiler has nothing to put
};

enum class Scope { scheduler, block, chip };

/// Who goes on when operations of several warps are queued.
enum class Turns {
  in_order,   // the one that came first
  same_warp,  // the warp whose operation has just ended, as long as it has one
};

/// Works off operations one after the other.
struct EngineConstants {
  Scope scope = Scope::block;
  Turns turns = Turns::in_order;
  Constant depth;       // operations that are queued or running before the issuer waits; 0: any
  Constant fma_stolen;  // clocks that a running operation loses by an FFMA of its scheduler
};

struct OperationConstants {
  const char* engine = "";
  Constant clocks;   // of the engine, for one unit: a product, a byte
  Constant latency;  // from its end there until others know
  Constant slots;    // issue slots of the warp that starts it
  Constant issue;    // until that warp's next instruction
};

struct MachineConstants {
  const char* name = "";
  const char* status = "";  // calibrated, or a prediction
  int schedulers = 4;
  int multiprocessors = 0;
  Constant megahertz;
  std::array<PipeConstants, kPipes> pipes{};
  std::map<std::string, EngineConstants> engines;
  std::map<std::string, OperationConstants> operations;
  Constant arrival;          // until a barrier of the block counts an arrival
  Constant cluster_arrival;  // the same of another block
  Constant wake;             // from the end of a phase to the next instruction of who waits
  Constant group_wake;       // from the end of a group of operations to the same
  Constant wait_slots;       // issue slots of a wait that finds its phase over
  Constant arrive_slots;
  Constant group_slots;  // of a commit, and of a wait for groups
  Constant shared_rate;  // bytes a clock that all multiprocessors together get from L2
};

const MachineConstants& h200();
const MachineConstants& b200();
const MachineConstants& b200_slow_loads();  // the same with the lowest rate that was published
const MachineConstants& b300();
const MachineConstants& rtx5090();
const MachineConstants& rtx4090();

/// By its name; throws std::invalid_argument, which lists the names.
const MachineConstants& machine_constants(std::string_view name);

}  // namespace openvc::timing
