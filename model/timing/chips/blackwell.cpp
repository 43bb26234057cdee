// SPDX-License-Identifier: BSD-3-Clause
#include "timing/machine_constants.hpp"

// NVIDIA B200 (148 multiprocessors, sm_100a) and B300 (sm_103a). Nobody here has either: all of it
// is public or assumed, and what follows from it is a prediction.
//
// "b200": measured on a B200 in the public repository AndreSlavescu/flashinfer-competition (review
// of its utcmma benchmark, 2026-03-19). "b300": measured on a B300 in the public repository
// ademeure/QuickRunCUDA (b300_clean, 2026-04). "peak": NVIDIA's dense FP8 rate, 4.5 PFLOP/s at
// 1,850 MHz, which is 16,384 FLOP a clock and multiprocessor. "h200": as on an H200, measured there
// (chips/h200.cpp). "assumed": a guess, for want of anything better.
namespace openvc::timing {
namespace {

// Loads from tensor memory. A test of the public repository tile-ai/TileSight (tmem.cu, on a B200)
// lets eight warps of a multiprocessor store and load 32 columns in turn and wait for each load:
// 1,008 bytes a clock, half of them loaded, 126 for each of four quarters. That is the width of the
// lanes. Its test of loads alone finds 117, that of stores alone 256.
constexpr Constant kLoads{128, "bytes/clock", "tilesight: 126 of a quarter, beside as many stores"};
// What a load of 16 columns and the wait behind it take one warp, and so a latency rather than a
// rate (36 clocks are 16 and a latency of 20). Kept as the worst that was ever published.
constexpr Constant kSlowLoads{57, "bytes/clock", "b300: one warp's x16 and its wait"};

/// `load_rate`: bytes a clock that a quarter of tensor memory, 32 lanes, gives to its warps.
MachineConstants datacenter_blackwell(const Constant& load_rate) {
  MachineConstants m;
  m.status = "a prediction: not calibrated";
  m.multiprocessors = 148;
  m.megahertz = {1965, "MHz", "boost clock"};
  const auto pipe = [&](Pipe p, int unit, double interval, const char* source, double stall,
                        const char* stall_source) {
    m.pipes[static_cast<std::size_t>(p)] = {
        unit, {interval, "clocks", source}, {stall, "clocks", stall_source}};
  };
  constexpr const char* kHidden = "hidden by neighbouring instructions";
  pipe(Pipe::fma, 0, 1, "b300: 0.97 a clock and scheduler", 0, kHidden);
  pipe(Pipe::fma_pair, 0, 2, "128 binary32 products a clock and multiprocessor", 0, kHidden);
  pipe(Pipe::half, 0, 1, "h200", 0, kHidden);
  pipe(Pipe::half_add, 0, 1.28, "h200", 0, kHidden);
  // Maxima of a thread's own row are a tree, on Hopper two chains.
  pipe(Pipe::maximum, 1, 1, "b300: FMNMX 0.99 a clock and scheduler", 0, kHidden);
  pipe(Pipe::alu, 2, 2, "b300: PRMT 0.5 a clock and scheduler", 3, "h200");
  pipe(Pipe::convert, 2, 2, "h200", 0, kHidden);
  pipe(Pipe::special, 3, 8, "16 lanes a clock: NVIDIA", 30, "h200");
  pipe(Pipe::exchange, 4, 4, "b300: SHFL 0.25 a clock and scheduler", 66, "h200");
  pipe(Pipe::vote, 5, 1, "assumed", 30, "h200");
  pipe(Pipe::other, 6, 1, "an issue slot", 0, kHidden);

  const Constant unlimited{0, "operations", "assumed: any number queues"};
  const Constant none{0, "clocks/FFMA", "sums are in tensor memory"};
  m.engines["tensor core"] = {Scope::block, Turns::in_order, unlimited, none};
  m.engines["TMA"] = {Scope::block, Turns::in_order, unlimited, none};
  m.engines["tensor memory"] = {Scope::scheduler, Turns::in_order, unlimited, none};

  // 128 x n x 32: 2 * 128 * 32 * n FLOP. The last product of a chain is done 10 clocks after its
  // rate says (b200: 74 for 64), its tcgen05.commit 30 clocks later.
  const Constant latency{40, "clocks", "b200: 10 of the product, 30 of the commit"};
  const Constant slots{4, "instructions", "h200: a product and its descriptors"};
  const Constant at_once{0, "clocks", "assumed: one thread issues faster than products run"};
  const Constant none_yet{0, "clocks", "the commit has it"};
  for (const int n : {128, 136, 144}) {
    m.operations["mma.f8.n" + std::to_string(n)] = {
        "tensor core", {n / 2.0, "clocks", "peak"}, latency, slots, at_once};
  }
  // The same as kernels on the model have them.
  for (const int n : {64, 80, 128, 144, 160}) {
    m.operations["tcgen05.mma.n" + std::to_string(n)] = {
        "tensor core", {n / 2.0, "clocks", "peak"}, none_yet, slots, at_once};
  }
  m.operations["tcgen05.commit"] = {"tensor core",
                                    {0, "clocks", "waits for products, multiplies nothing"},
                                    latency,
                                    slots,
                                    at_once};
  // A warp's 32 lanes of 32 bits: 128 bytes a column.
  constexpr double kColumnBytes = 128;
  const Constant load_latency{26, "clocks", "b200: 13 of an access and 13 of its wait"};
  const Constant access_slots{2, "instructions", "assumed"};
  m.operations["tmem.load.x32"] = {
      "tensor memory",
      {32 * kColumnBytes / load_rate.value, "clocks", load_rate.source},
      load_latency,
      access_slots,
      at_once};
  m.operations["tmem.load.half.x32"] = {
      "tensor memory",
      {32 * kColumnBytes / load_rate.value, "clocks", load_rate.source},
      load_latency,
      access_slots,
      at_once};
  m.operations["tmem.store.x16"] = {"tensor memory",
                                    {9, "clocks", "b200: 13.0 for one column, 21.6 for 16"},
                                    {26, "clocks", "b200: 13 of an access and 13 of its wait"},
                                    access_slots,
                                    at_once};
  const auto load = [&](const std::string& shape, int columns) {
    m.operations["tcgen05.ld.32x32b." + shape] = {
        "tensor memory",
        {columns * kColumnBytes / load_rate.value, "clocks", load_rate.source},
        load_latency,
        access_slots,
        at_once};
  };
  load("x8", 8);
  load("x16", 16);
  load("x32", 32);
  load("x64.pack::16b", 128);  // a binary16 score takes a column
  m.operations["tcgen05.st.32x32b.x16"] = {"tensor memory",
                                           {9, "clocks", "b200: 13.0 for one column, 21.6 for 16"},
                                           load_latency,
                                           access_slots,
                                           at_once};
  m.operations["tcgen05.st.32x32b.x32"] = {"tensor memory",
                                           {19, "clocks", "b200: 13.0 for one column, 31.6 for 32"},
                                           load_latency,
                                           access_slots,
                                           at_once};
  for (const char* name :
       {"cp.async.bulk.tensor.3d", "cp.async.bulk.tensor.3d.multicast", "cp.async.bulk"}) {
    m.operations[name] = {"TMA",
                          {196.0 / 16384, "clocks/byte", "h200"},
                          {301, "clocks", "b300: latency of L2"},
                          slots,
                          at_once};
  }
  const Constant per_byte{196.0 / 16384, "clocks/byte", "h200"};
  m.operations["tma.tile"] = {
      "TMA", per_byte, {301, "clocks", "b300: latency of L2"}, slots, at_once};

  m.arrival = {44, "clocks", "b200: half of an mbarrier's round trip of 88.5"};
  m.cluster_arrival = {97, "clocks", "h200"};
  m.wake = {44, "clocks", "b200: the other half"};
  m.group_wake = {0, "clocks", "in the latency of an access"};
  m.wait_slots = {8, "instructions", "h200"};
  m.arrive_slots = {8, "instructions", "h200"};
  m.group_slots = {1, "instructions", "assumed"};
  m.shared_rate = {10400, "bytes/clock", "20.5 TB/s of L2 at 1,965 MHz, as TileSight lists it"};
  return m;
}

}  // namespace

const MachineConstants& b200() {
  static const MachineConstants machine = [] {
    MachineConstants m = datacenter_blackwell(kLoads);
    m.name = "b200";
    return m;
  }();
  return machine;
}

const MachineConstants& b200_slow_loads() {
  static const MachineConstants machine = [] {
    MachineConstants m = datacenter_blackwell(kSlowLoads);
    m.name = "b200_slow_loads";
    return m;
  }();
  return machine;
}

const MachineConstants& b300() {
  static const MachineConstants machine = [] {
    MachineConstants m = datacenter_blackwell(kLoads);
    m.name = "b300";
    m.megahertz = {1920, "MHz", "b300"};
    auto& special = m.pipes[static_cast<std::size_t>(Pipe::special)];
    special.interval = {4, "clocks", "32 lanes a clock: twice a B200's, NVIDIA"};
    return m;
  }();
  return machine;
}

}  // namespace openvc::timing
