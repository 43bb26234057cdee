// SPDX-License-Identifier: BSD-3-Clause
//
// Time of the input preparation next to its memory floor: the bytes that must move once, divided by
// the bandwidth of a device-to-device copy measured in the same run. BF16, contiguous, standard
// normal inputs; L2 is overwritten before every launch.
//
//   prepare_benchmark [--shapes 73397x56,4096x7] [--steps 2] [--repair 0.0]
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "cuda/device_data.cuh"
#include "cuda/graph_timing.cuh"
#include "cuda/host/check.hpp"
#include "cuda/host/driver_version.hpp"
#include "cuda/prepare/prepare.hpp"
#include "cuda/sm90/launch.hpp"
#include "numerics/repair.hpp"

namespace {

using namespace openvc;
using openvc::benchmarks::Buffer;
using openvc::benchmarks::fill_normal;
using openvc::cuda::check;
namespace prepare = openvc::cuda::prepare;

constexpr int kRuns = 20;
constexpr std::size_t kFlushBytes = std::size_t{256} << 20;
constexpr std::size_t kCopyBytes = std::size_t{2} << 30;

/// Median milliseconds of `work` on a cold cache.
double measure(const std::function<void()>& work, const Buffer& flush) {
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  check(cudaEventCreate(&start), "creating an event");
  check(cudaEventCreate(&stop), "creating an event");
  std::vector<float> times;
  for (int run = -3; run < kRuns; ++run) {
    check(cudaMemsetAsync(flush.get(), run & 0xFF, kFlushBytes, nullptr), "flushing");
    check(cudaEventRecord(start), "recording");
    work();
    check(cudaEventRecord(stop), "recording");
    check(cudaEventSynchronize(stop), "running");
    float ms = 0.0f;
    check(cudaEventElapsedTime(&ms, start, stop), "timing");
    if (run >= 0) times.push_back(ms);
  }
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

/// Bytes per second that a copy reads and writes.
double copy_bandwidth(const Buffer& flush) {
  const Buffer from(kCopyBytes);
  const Buffer to(kCopyBytes);
  const double ms = measure(
      [&] {
        check(cudaMemcpyAsync(to.get(), from.get(), kCopyBytes, cudaMemcpyDeviceToDevice, nullptr),
              "copying");
      },
      flush);
  return 2.0 * static_cast<double>(kCopyBytes) / (ms * 1e-3);
}

struct Options {
  std::vector<openvc::benchmarks::Shape> shapes{{1024, 8},   {2048, 8},  {4096, 8},
                                                {4096, 24},  {4096, 56}, {32760, 7},
                                                {32760, 56}, {73397, 7}, {73397, 56}};
  int steps = 2;
  double repair = 0.0;
};

void run_shape(std::int64_t tokens, std::int64_t heads, const Options& options, double bandwidth,
               const Buffer& flush) {
  constexpr ElementType kType = ElementType::bfloat16;
  const std::array<std::int64_t, 4> shape{1, tokens, heads, numerics::kHeadDim};
  const auto elements = static_cast<std::size_t>(tokens * heads * numerics::kHeadDim);
  const Buffer q(elements * 2);
  const Buffer k(elements * 2);
  const Buffer v(elements * 2);
  std::uint64_t seed = 0;
  const auto view = [&](const Buffer& buffer) {
    fill_normal<<<1024, 256>>>(buffer.get<std::uint16_t>(), elements, ++seed);
    return TensorView{buffer.get(), kType, {DeviceType::cuda, 0}, shape, contiguous_strides(shape)};
  };
  schedule::PrepareRequest request;
  request.format = cuda::sm90::kPackedFormat;
  request.q = view(q);
  request.k = view(k);
  request.v = view(v);
  request.problem.heads = heads;
  request.problem.queries = request.problem.keys = tokens;
  request.problem.repair_rows = numerics::repair_row_count(options.repair, tokens);
  request.softmax_scale = 0.08838834764831845f;
  request.numerics.max_extra_steps = options.steps;
  const auto layout = schedule::prepared_layout(request);
  const Buffer block(layout.bytes);
  const Buffer workspace(prepare::workspace_bytes(request));
  prepare::launch(request, block.get(), workspace.get(), nullptr);
  std::int64_t steps = 0;
  for (const numerics::HeadPlan& plan : prepare::read_plans(request, workspace.get(), nullptr)) {
    steps += plan.scores.extra_steps;
  }
  // Columns are written for the steps of a head, 32 bytes a step, token and tensor.
  const auto planned = static_cast<double>(options.steps * heads - steps);
  const double skipped = planned * 2.0 * static_cast<double>(tokens * numerics::kColumnsPerStep);
  const double read = 3.0 * static_cast<double>(elements) * 2.0;
  const double written = static_cast<double>(layout.bytes) - skipped;
  const double floor_ms = (read + written) / bandwidth * 1e3;
  const double cold =
      measure([&] { prepare::launch(request, block.get(), workspace.get(), nullptr); }, flush);
  const double replayed = benchmarks::time_in_graph(
      [&](cudaStream_t stream) { prepare::launch(request, block.get(), workspace.get(), stream); },
      kRuns, kRuns)[0];
  std::printf(
      "%6lld x %-3lld  read %7.1f MB  written %7.1f MB  steps %.2f  floor %.4f ms  cold %.4f ms  "
      "%.2f TB/s  ratio %.3f  replayed in a graph %.4f ms\n",
      static_cast<long long>(tokens), static_cast<long long>(heads), read * 1e-6, written * 1e-6,
      static_cast<double>(steps) / static_cast<double>(heads), floor_ms, cold,
      (read + written) / cold * 1e-9, cold / floor_ms, replayed);
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
  Options options;
  openvc::benchmarks::Arguments arguments("prepare_benchmark");
  arguments.shapes("--shapes", options.shapes);
  arguments.one_of("--steps", {0, 1, 2, 4}, options.steps);
  arguments.share("--repair", options.repair);
  if (!arguments.parse(count, words)) return 2;
  try {
    const Buffer flush(kFlushBytes);
    const double bandwidth = copy_bandwidth(flush);
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "reading the device's properties");
    std::printf("%s, driver %s, L2 %.1f MB, copy %.3f TB/s\n", properties.name,
                cuda::driver_version().c_str(), properties.l2CacheSize * 1e-6, bandwidth * 1e-12);
    for (const auto& [tokens, heads] : options.shapes) {
      run_shape(tokens, heads, options, bandwidth, flush);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
