// SPDX-License-Identifier: BSD-3-Clause
#include "timing/machine_constants.hpp"

// GeForce RTX 5090 (170 multiprocessors, sm_120a) and RTX 4090 (128, sm_89): mma.sync, no
// asynchronous tensor core; a product stalls nobody but its own sums. Nobody here has either:
// predictions.
//
// "mmapeak": measured on an RTX 5090 and published at main-horse.github.io/posts/5090-mm-perf:
// 737.1 TFLOP/s of E4M3 with binary16 sums, 370.0 with binary32. At 2.407 GHz the first would be
// 1,801 FLOP a clock and multiprocessor, 88 % of the 2,048 that NVIDIA states. "nvidia": the
// whitepapers of Ada and Blackwell GeForce. "h200": as measured on an H200. "b300": as chips/
// blackwell.cpp has it. "assumed": a guess.
namespace openvc::timing {
namespace {

MachineConstants geforce(double half_sum_rate, double float_sum_rate, const char* rate_source) {
  MachineConstants m;
  m.status = "a prediction: not calibrated";
  const auto pipe = [&](Pipe p, int unit, double interval, const char* source, double stall) {
    m.pipes[static_cast<std::size_t>(p)] = {
        unit,
        {interval, "clocks", source},
        {stall, "clocks", stall > 0 ? "h200" : "hidden by neighbouring instructions"}};
  };
  pipe(Pipe::fma, 0, 1, "nvidia: 128 lanes", 0);
  pipe(Pipe::fma_pair, 0, 2, "nvidia: 128 lanes", 0);
  pipe(Pipe::half, 0, 1, "nvidia: as binary32", 0);
  pipe(Pipe::half_add, 0, 1, "nvidia: as binary32", 0);
  pipe(Pipe::maximum, 1, 2, "h200", 10);
  pipe(Pipe::alu, 1, 2, "h200", 3);
  pipe(Pipe::convert, 1, 2, "h200", 0);
  pipe(Pipe::special, 2, 8, "nvidia: 16 lanes", 30);
  pipe(Pipe::exchange, 3, 4, "b300", 66);
  pipe(Pipe::vote, 4, 1, "assumed", 30);
  pipe(Pipe::other, 5, 1, "an issue slot", 0);

  m.engines["tensor core"] = {Scope::scheduler,
                              Turns::in_order,
                              {2, "operations", "assumed"},
                              {0, "clocks/FFMA", "assumed"}};
  m.engines["copies"] = {
      Scope::block, Turns::in_order, {0, "operations", "any"}, {0, "clocks/FFMA", "none"}};
  // m16n8k32: 8192 FLOP on one of four tensor cores.
  constexpr double kFlop = 8192;
  const Constant latency{33, "clocks", "assumed: mma.sync of Ampere and Ada, published as 33"};
  const Constant slots{1, "instructions", "mma.sync"};
  const Constant at_once{0, "clocks", "assumed"};
  m.operations["mma.m16n8k32.f16"] = {
      "tensor core", {kFlop * 4 / half_sum_rate, "clocks", rate_source}, latency, slots, at_once};
  m.operations["mma.m16n8k32.f32"] = {
      "tensor core", {kFlop * 4 / float_sum_rate, "clocks", rate_source}, latency, slots, at_once};
  m.operations["ldmatrix.x4"] = {"copies",
                                 {4, "clocks", "512 bytes at 128 a clock: nvidia"},
                                 {29, "clocks", "assumed"},
                                 slots,
                                 at_once};
  m.operations["cp.async"] = {
      "copies", {1.0 / 32, "clocks/byte", "assumed"}, {600, "clocks", "assumed"}, slots, at_once};

  m.arrival = {20, "clocks", "assumed"};
  m.cluster_arrival = {0, "clocks", "no clusters that share memory"};
  m.wake = {20, "clocks", "assumed"};
  m.group_wake = {0, "clocks", "in the latencies"};
  m.wait_slots = {8, "instructions", "h200"};
  m.arrive_slots = {8, "instructions", "h200"};
  m.group_slots = {1, "instructions", "assumed"};
  return m;
}

}  // namespace

const MachineConstants& rtx5090() {
  static const MachineConstants machine = [] {
    MachineConstants m = geforce(2048, 1024, "nvidia: 838 and 419 TFLOP/s; mmapeak finds 88 %");
    m.name = "rtx5090";
    m.multiprocessors = 170;
    m.megahertz = {2407, "MHz", "nvidia: boost clock"};
    m.shared_rate = {4000, "bytes/clock", "assumed"};
    return m;
  }();
  return machine;
}

const MachineConstants& rtx4090() {
  static const MachineConstants machine = [] {
    MachineConstants m = geforce(2048, 1024, "nvidia: 660.6 and 330.3 TFLOP/s of E4M3, dense");
    m.name = "rtx4090";
    m.multiprocessors = 128;
    m.megahertz = {2520, "MHz", "nvidia: boost clock"};
    m.shared_rate = {2500, "bytes/clock", "assumed"};
    return m;
  }();
  return machine;
}

}  // namespace openvc::timing
