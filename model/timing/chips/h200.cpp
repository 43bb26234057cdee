// SPDX-License-Identifier: BSD-3-Clause
#include "timing/machine_constants.hpp"

// NVIDIA H200, 132 multiprocessors.
//
// "rates": instruction rates measured on an H200, lanes per clock and multiprocessor, of
// docs/kernels/sm90_sass.md. "latencies": benchmarks/cuda/hand_over_latency.cu on an H200,
// docs/results/model/timing.json. "SASS": counts of the shipped kernel, docs/kernels/sm90_sass.md.
// "calibrated": chosen so that the calibration variants of docs/results/model/timing.json are met.
namespace openvc::timing {

const MachineConstants& h200() {
  static const MachineConstants machine = [] {
    MachineConstants m;
    m.name = "h200";
    m.status = "calibrated";
    m.multiprocessors = 132;
    m.megahertz = {1980, "MHz", "boost clock of the card, seen at low work"};

    constexpr const char* kRates = "rates";
    constexpr const char* kCalibrated = "calibrated";
    constexpr const char* kHidden = "hidden by neighbouring instructions";
    const Constant none{0, "clocks", kHidden};
    const auto pipe = [&](Pipe p, int unit, double interval, Constant stall) {
      m.pipes[static_cast<std::size_t>(p)] = {unit, {interval, "clocks", kRates}, stall};
    };
    pipe(Pipe::fma, 0, 1, none);
    pipe(Pipe::fma_pair, 0, 2, none);  // no such instruction: as two FFMA
    pipe(Pipe::half, 0, 1, none);
    pipe(Pipe::half_add, 0, 1.28, none);
    pipe(Pipe::maximum, 1, 2, {10, "clocks", kCalibrated});
    pipe(Pipe::alu, 1, 2, {3, "clocks", kCalibrated});
    pipe(Pipe::convert, 1, 2, none);
    pipe(Pipe::special, 2, 8, {30, "clocks", kCalibrated});
    pipe(Pipe::exchange, 3, 2, {66, "clocks", kCalibrated});
    pipe(Pipe::vote, 4, 1, {30, "clocks", kCalibrated});
    pipe(Pipe::other, 5, 1, none);

    m.engines["tensor core"] = {Scope::scheduler,
                                Turns::same_warp,
                                {8, "operations", "latencies: 8 are issued at once, 12 are not"},
                                {0, "clocks/FFMA", "no variant shows any"}};
    m.engines["TMA"] = {
        Scope::block, Turns::in_order, {0, "operations", "unlimited"}, {0, "clocks/FFMA", "none"}};
    constexpr const char* kRate = "8192 FLOP a clock and multiprocessor: docs/kernels/sm90.md";
    const Constant slots{4, "instructions", "SASS: QGMMA and its descriptors"};
    const Constant issue{12, "clocks",
                         "latencies: 16 from one product to the next, with its slots"};
    m.operations["wgmma.m64n128k32.f16"] = {"tensor core",
                                            {64, "clocks", kRate},
                                            {58, "clocks", "latencies: a group of 4 and its wait"},
                                            slots,
                                            issue};
    m.operations["wgmma.m64n136k32.f32"] = {"tensor core",
                                            {68, "clocks", kRate},
                                            {73, "clocks", "latencies: a group of 4 and its wait"},
                                            slots,
                                            issue};
    const Constant no_issue{0, "clocks", "none seen"};
    const Constant copy_slots{4, "instructions", "UTMALDG and its operands"};
    const Constant per_byte{196.0 / 16384, "clocks/byte", "latencies: four tiles in flight"};
    const Constant copy_latency{230, "clocks", "latencies: a tile of 16 KiB alone takes 494"};
    m.operations["cp.async.bulk.tensor.3d.multicast"] = {
        "TMA", per_byte, {380, "clocks", kCalibrated}, copy_slots, no_issue};
    for (const char* name : {"cp.async.bulk.tensor.3d", "cp.async.bulk"}) {
      m.operations[name] = {"TMA", per_byte, copy_latency, copy_slots, no_issue};
    }
    m.arrival = {25, "clocks", "latencies"};
    m.cluster_arrival = {97, "clocks", "latencies"};
    m.wake = {25, "clocks", "latencies"};
    m.group_wake = {10, "clocks", "latencies"};
    m.wait_slots = {8, "instructions", "SASS: uniform and other instructions of a tile"};
    m.arrive_slots = {8, "instructions", "SASS: the same"};
    m.group_slots = {2, "instructions", "SASS: the same"};
    m.shared_rate = {11000, "bytes/clock", "latencies: 132 blocks copy as fast as one"};
    return m;
  }();
  return machine;
}

}  // namespace openvc::timing
