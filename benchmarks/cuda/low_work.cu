// SPDX-License-Identifier: BSD-3-Clause
//
// Clocks that the Hopper kernel and variants of it need for a block of 128 keys, at so little work
// that the power limit does not bind: one work item for each SM, pauses between launches. From
// launches of several lengths, so that the slope leaves out what happens once. The clock model is
// held to these (docs/machine_model.md). Where the build has an image of the kernel of sm89/ for
// Hopper, for its tests, that one too: tensor cores of Hopper have no FP8 products of one warp, and
// compute them from binary16.
//
//   low_work [--repetitions 12] [--pause 0.004]      one JSON object on stdout
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <iterator>
#include <span>
#include <thread>
#include <vector>

#include "arguments.hpp"
#include "cuda/clock_sampler.cuh"
#include "cuda/gpu_sample.cuh"
#include "cuda/low_work_kernels.cuh"
#if defined(OPENVC_SM89_ON_HOPPER)
#include "cuda/sm89/configurations.hpp"
#include "cuda/sm89/launch_kernel.hpp"
#endif

namespace {

using namespace openvc;
using cuda::check;
using low_work::Variant;

constexpr std::int64_t kLengths[] = {4096, 20480, 36864};  // keys
constexpr std::int64_t kMostKeys = 36864;
constexpr int kBlocks[] = {8, 130};  // thread blocks; the clock sampler has an SM of its own
constexpr int kMostBlocks = 130;

/// The inputs on the device.
class Inputs {
 public:
  Inputs() : host_(std::int64_t{cuda::sm90::kRowsPerBlock} * kMostBlocks, kMostKeys) {
    check(cudaMalloc(&device_, host_.bytes()), "allocating prepared inputs");
    check(cudaMalloc(&output_, std::size_t{kMostBlocks} * cuda::sm90::kRowsPerBlock *
                                   numerics::kHeadDim * sizeof(std::uint16_t)),
          "allocating an output");
  }
  ~Inputs() {
    cudaFree(device_);
    cudaFree(output_);
  }
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;

  /// Puts what the variant reads onto the device.
  void upload(const Variant& variant) const {
    std::vector<std::byte> data(host_.bytes());
    host_.write(variant, data.data());
    check(cudaMemcpy(device_, data.data(), data.size(), cudaMemcpyHostToDevice), "copying inputs");
  }

  [[nodiscard]] cuda::Parameters parameters(const Variant& variant, int blocks,
                                            std::int64_t keys) const {
    return host_.parameters(variant, static_cast<const std::byte*>(device_), host_.output(output_),
                            blocks, keys);
  }

 private:
  low_work::HostInputs host_;
  void* device_ = nullptr;
  void* output_ = nullptr;
};

std::vector<Variant> all_variants() {
  const std::span<const Variant> hopper = low_work::variants();
  std::vector<Variant> all(hopper.begin(), hopper.end());
#if defined(OPENVC_SM89_ON_HOPPER)
  using namespace cuda::sm89;
  all.push_back({"sm89_dense", launch_kernel<Dense>, 1});
  all.push_back({"sm89_dense_wide_moving", launch_kernel<Dense>, 1, 0, true});
  all.push_back({"sm89_four_steps_4", launch_kernel<DenseFourSteps>, 1, 4});
#endif
  return all;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure(const Variant& variant, const Inputs& inputs, benchmarks::LaunchTimer& timer,
             int repetitions, double pause, bool& first) {
  inputs.upload(variant);
  for (const int blocks : kBlocks) {
    // Causal items of a long query have unlike lengths: only the few last rows are timed.
    if (variant.causal && blocks == kMostBlocks) continue;
    cuda::DeviceInfo device = cuda::device_info(0);
    device.multiprocessors = std::min(device.multiprocessors, blocks);
    std::vector<double> clocks_of_length, mhz_of_length;
    for (const std::int64_t keys : kLengths) {
      const cuda::Parameters p = inputs.parameters(variant, blocks, keys);
      std::vector<double> clocks, megahertz, nanoseconds;
      int uncovered = 0;
      for (int i = 0; i <= repetitions; ++i) {
        std::this_thread::sleep_for(std::chrono::duration<double>(pause));
        const benchmarks::TimedLaunch t =
            timer.time([&](cudaStream_t stream) { variant.launch(p, device, stream); });
        if (i == 0) continue;  // loads the module
        uncovered += !t.covered;
        constexpr double kPerMillisecond = 1e3;
        clocks.push_back(t.milliseconds * t.megahertz * kPerMillisecond);
        megahertz.push_back(t.megahertz);
        nanoseconds.push_back(t.milliseconds * 1e6);
      }
      std::printf(
          "%s\n    {\"variant\": \"%s\", \"thread_blocks\": %d, \"keys\": %lld, "
          "\"nanoseconds\": %.0f, \"megahertz\": %.1f, \"clocks\": %.0f, \"least_clocks\": %.0f, "
          "\"most_clocks\": %.0f, \"uncovered\": %d}",
          first ? "" : ",", variant.name, blocks, static_cast<long long>(keys), median(nanoseconds),
          median(megahertz), median(clocks), *std::ranges::min_element(clocks),
          *std::ranges::max_element(clocks), uncovered);
      first = false;
      clocks_of_length.push_back(median(clocks));
    }
    std::fprintf(stderr, "%-26s %4d blocks", variant.name, blocks);
    for (std::size_t i = 1; i < std::size(kLengths); ++i) {
      std::fprintf(stderr, "  %8.1f",
                   (clocks_of_length[i] - clocks_of_length[0]) * numerics::kKeyBlock /
                       static_cast<double>(kLengths[i] - kLengths[0]));
    }
    std::fprintf(stderr, " clocks per key block\n");
  }
}

void run(int repetitions, double pause) {
  const Inputs inputs;
  benchmarks::LaunchTimer timer;
  const benchmarks::GpuSample idle = benchmarks::sample_gpu(0);
  std::printf("{\"device\": \"%s\", \"multiprocessors\": %d, \"idle_megahertz\": %u,",
              cuda::device_info(0).name.c_str(), cuda::device_info(0).multiprocessors,
              idle.sm_clock_mhz);
  std::printf("\n  \"launches\": [");
  bool first = true;
  for (const Variant& variant : all_variants()) {
    measure(variant, inputs, timer, repetitions, pause, first);
    std::fflush(stdout);
  }
  const benchmarks::GpuSample last = benchmarks::sample_gpu(0);
  std::printf("],\n  \"last_megahertz\": %u, \"last_watts\": %.0f, \"throttle_reasons\": %llu}\n",
              last.sm_clock_mhz, last.power_watts,
              static_cast<unsigned long long>(last.throttle_reasons));
}

}  // namespace

int main(int count, char** words) {
  double repetitions = 12;
  double pause = 0.004;  // seconds
  benchmarks::Arguments arguments("low_work");
  arguments.above_zero("--repetitions", repetitions);
  arguments.above_zero("--pause", pause);
  if (!arguments.parse(count, words)) return 2;
  try {
    run(static_cast<int>(repetitions), pause);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "low_work: %s\n", error.what());
    return 1;
  }
  return 0;
}
