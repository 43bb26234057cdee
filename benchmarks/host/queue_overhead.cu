// SPDX-License-Identifier: BSD-3-Clause
//
// What a call of the C++ interface costs the host on CUDA tensors, next to the runtime calls that
// it is made of: time until a call returns, with its work queued and not waited for. Median over
// batches; few enough calls are queued between two synchronisations that none waits for room.
//
//   queue_overhead [--tokens 128,512,2048,4096] [--heads 8]
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "cuda/host/check.hpp"
#include "cuda/host/tensor_map.hpp"
#include "openvc/attention.hpp"

namespace {

using namespace openvc;
using openvc::cuda::check;

constexpr int kWarmUpCalls = 20;
constexpr int kBatches = 40;
constexpr int kCallsPerBatch = 50;
constexpr std::int64_t kHeadDim = 128;
constexpr std::size_t kScratchBytes = std::size_t{256} << 20;

/// As large as the parameters of the attention kernel.
struct Payload {
  std::byte bytes[1024];
};
__global__ void no_work() {}
__global__ void no_work_on(Payload) {}

using Memory = std::shared_ptr<std::byte>;

Memory device_memory(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "allocating");
  check(cudaMemset(memory, 0, bytes), "clearing");
  return {static_cast<std::byte*>(memory), [](std::byte* block) { (void)cudaFree(block); }};
}

double median_microseconds(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < kWarmUpCalls; ++i) call();
  std::vector<double> times;
  for (int batch = 0; batch < kBatches; ++batch) {
    check(cudaDeviceSynchronize(), "waiting");
    const auto begin = Clock::now();
    for (int i = 0; i < kCallsPerBatch; ++i) call();
    const std::chrono::duration<double, std::micro> time = Clock::now() - begin;
    times.push_back(time.count() / kCallsPerBatch);
  }
  check(cudaDeviceSynchronize(), "waiting");
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void print(const std::string& name, const std::function<void()>& call) {
  std::printf("%-52s %8.2f us\n", name.c_str(), median_microseconds(call));
}

template <class... Parameters>
void launch(void (*kernel)(Parameters...), std::optional<cudaLaunchAttribute> attribute,
            const Parameters&... parameters) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(2);
  config.blockDim = dim3(32);
  config.attrs = attribute ? &*attribute : nullptr;
  config.numAttrs = attribute ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, parameters...), "launching");
}

void print_runtime_calls(const Memory& scratch) {
  print("cudaGetDevice", [] {
    int device = 0;
    check(cudaGetDevice(&device), "reading the device");
  });
  print("cudaMallocAsync + cudaFreeAsync, 16 MiB", [] {
    void* memory = nullptr;
    check(cudaMallocAsync(&memory, std::size_t{16} << 20, nullptr), "allocating");
    check(cudaFreeAsync(memory, nullptr), "freeing");
  });
  print("cuTensorMapEncodeTiled", [&scratch] {
    const cuda::ByteTensor tensor{.data = scratch.get(),
                                  .shape = {kHeadDim, 2048, 8},
                                  .row_bytes = kHeadDim,
                                  .plane_bytes = kHeadDim * 2048,
                                  .box = {kHeadDim, 128}};
    (void)cuda::encode_tensor_map(tensor, cuda::TileSwizzle::bytes_128);
  });
  print("cudaFuncSetAttribute", [] {
    check(cudaFuncSetAttribute(no_work, cudaFuncAttributeMaxDynamicSharedMemorySize, 0),
          "setting an attribute");
  });
  print("cudaMemsetAsync, 1 KiB",
        [&scratch] { check(cudaMemsetAsync(scratch.get(), 0, 1024, nullptr), "clearing"); });
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {2, 1, 1};
  print("launch", [] { launch(no_work, {}); });
  print("launch, programmatic dependent", [&] { launch(no_work, overlap); });
  print("launch, clusters", [&] { launch(no_work, cluster); });
  print("launch, 1 KiB of parameters", [] { launch(no_work_on, {}, Payload{}); });
}

void print_calls(std::int64_t tokens, std::int64_t heads, const Memory& scratch) {
  const std::array<std::int64_t, 4> shape{1, tokens, heads, kHeadDim};
  const auto bytes = static_cast<std::size_t>(tokens * heads * kHeadDim) * sizeof(std::uint16_t);
  const std::array<Memory, 4> memory{device_memory(bytes), device_memory(bytes),
                                     device_memory(bytes), device_memory(bytes)};
  const auto view = [&](std::size_t i) {
    MutableTensorView tensor;
    tensor.data = memory[i].get();
    tensor.device = {DeviceType::cuda, 0};
    tensor.shape = shape;
    tensor.strides = contiguous_strides(shape);
    return tensor;
  };
  const TensorView q = view(0).view();
  const TensorView k = view(1).view();
  const TensorView v = view(2).view();
  const MutableTensorView out = view(3);
  Execution at_hand;  // calls follow each other on one stream, so all may use the same memory
  at_hand.allocate = [&scratch](std::size_t wanted) {
    if (wanted > kScratchBytes) throw Error(ErrorCode::out_of_memory, "the problem is too large");
    return scratch;
  };
  const std::string size = ", " + std::to_string(tokens) + " x " + std::to_string(heads);
  print("attention(), memory at hand" + size,
        [&] { attention(q, k, v, out, nullptr, {}, at_hand); });
  print("attention(), cudaMallocAsync" + size, [&] { attention(q, k, v, out); });
  print("prepare(), memory at hand" + size, [&] { (void)prepare(q, k, v, {}, false, at_hand); });
  const Prepared prepared = prepare(q, k, v);
  print("attention_prepared()" + size, [&] { attention_prepared(prepared, out); });
}

}  // namespace

int main(int count, char** words) {
  std::vector<std::int64_t> tokens{128, 512, 2048, 4096};
  std::int64_t heads = 8;
  openvc::benchmarks::Arguments arguments("queue_overhead");
  arguments.counts("--tokens", tokens);
  arguments.count("--heads", heads);
  if (!arguments.parse(count, words)) return 2;
  try {
    const Memory scratch = device_memory(kScratchBytes);
    print_runtime_calls(scratch);
    for (const std::int64_t length : tokens) print_calls(length, heads, scratch);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
