// SPDX-License-Identifier: BSD-3-Clause
//
// Where the time of a short call goes: input preparation, attention kernel, both. Replays of a
// graph, so that the host costs nothing; BF16, standard normal inputs that stay where they are.
//
//   call_stages [--shapes 2048x8,2048x24] [--steps 2]
#include <cuda_runtime.h>

#include <array>
#include <cstdio>
#include <functional>
#include <vector>

#include "arguments.hpp"
#include "cuda/device_data.cuh"
#include "cuda/graph_timing.cuh"
#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/output/leave_axes.hpp"
#include "cuda/prepare/prepare.hpp"
#include "cuda/sm90/launch.hpp"

namespace {

using namespace openvc;
using openvc::benchmarks::Buffer;
using openvc::benchmarks::fill_normal;
using openvc::cuda::check;
namespace prepare = openvc::cuda::prepare;

constexpr int kCalls = 20;  // in a graph
constexpr int kReplays = 15;

/// Median microseconds of one of kCalls repetitions in a graph.
double replay(const std::function<void(cudaStream_t)>& work) {
  constexpr double kMicroseconds = 1e3;
  return benchmarks::time_in_graph(work, kCalls, kReplays)[kReplays / 2] * kMicroseconds;
}

void run_shape(std::int64_t tokens, std::int64_t heads, int steps) {
  constexpr ElementType kType = ElementType::bfloat16;
  const std::array<std::int64_t, 4> shape{1, tokens, heads, numerics::kHeadDim};
  const auto elements = static_cast<std::size_t>(tokens * heads * numerics::kHeadDim);
  const Buffer q(elements * 2);
  const Buffer k(elements * 2);
  const Buffer v(elements * 2);
  const Buffer o(elements * 2);
  std::uint64_t seed = 0;
  const auto view = [&](const Buffer& buffer) {
    fill_normal<<<1024, 256>>>(reinterpret_cast<std::uint16_t*>(buffer.get()), elements, ++seed);
    return TensorView{buffer.get(), kType, {DeviceType::cuda, 0}, shape, contiguous_strides(shape)};
  };
  schedule::PrepareRequest request;
  request.format = cuda::sm90::kPackedFormat;
  request.q = view(q);
  request.k = view(k);
  request.v = view(v);
  request.problem.heads = heads;
  request.problem.queries = request.problem.keys = tokens;
  request.softmax_scale = 0.08838834764831845f;
  request.numerics.max_extra_steps = steps;
  const Buffer block(schedule::prepared_layout(request).bytes);
  const Buffer workspace(prepare::workspace_bytes(request));
  const schedule::PreparedView inputs = schedule::prepared_view(request, block.get());
  const MutableTensorView out{
      o.get(), kType, {DeviceType::cuda, 0}, shape, contiguous_strides(shape)};
  const auto preparation = [&](cudaStream_t stream) {
    prepare::launch(request, block.get(), workspace.get(), stream);
  };
  const auto attention = [&](cudaStream_t stream) {
    cuda::sm90::launch(inputs, out, nullptr, stream);
    cuda::output::leave_axes(inputs, out, stream);
  };
  const double prepared = replay(preparation);
  const double attended = replay(attention);
  const double both = replay([&](cudaStream_t stream) {
    preparation(stream);
    attention(stream);
  });
  const double flops = 4.0 * static_cast<double>(tokens * tokens * heads * numerics::kHeadDim);
  std::printf(
      "%6lld x %-3lld  preparation %8.2f us  attention %8.2f us (%6.1f TFLOP/s)  call %8.2f us\n",
      static_cast<long long>(tokens), static_cast<long long>(heads), prepared, attended,
      flops / attended * 1e-6, both);
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
  std::vector<openvc::benchmarks::Shape> shapes = {
      {256, 66},  {512, 33}, {1024, 16}, {2048, 8}, {4096, 4},  {512, 8},   {1024, 8}, {2048, 16},
      {2048, 24}, {4096, 8}, {4096, 24}, {8192, 8}, {8192, 24}, {16384, 8}, {4096, 56}};
  int steps = 2;
  openvc::benchmarks::Arguments arguments("call_stages");
  arguments.shapes("--shapes", shapes);
  arguments.one_of("--steps", {0, 1, 2, 4}, steps);
  if (!arguments.parse(count, words)) return 2;
  try {
    for (const auto& [tokens, heads] : shapes) run_shape(tokens, heads, steps);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
