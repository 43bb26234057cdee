// SPDX-License-Identifier: BSD-3-Clause
//
// Runs the numeric contract on a GPU: its functions must give there the bits that they give on the
// host, and the instructions that kernels use in their place must agree with them over their whole
// domains. Usage: device_codec [--quick]; --quick takes every 61st argument of the large domains.
// Exit status: 0 all equal, 1 differences, 2 could not run, 77 no GPU to run on.

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "contract_cases.cuh"
#include "instruction_cases.cuh"

namespace openvc::exhaustive {
namespace {

constexpr std::uint64_t kQuickStride = 61;
constexpr std::uint64_t kLargeDomain = 1u << 24;
constexpr std::uint64_t kChunk = 1u << 26;  // results copied to the host at a time
constexpr int kThreads = 256;
constexpr int kNoDevice = 77;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
  }
}

unsigned blocks_for(std::uint64_t count) {
  constexpr std::uint64_t kMaxBlocks = 1u << 16;  // threads stride over the rest
  return static_cast<unsigned>(std::min(kMaxBlocks, (count + kThreads - 1) / kThreads));
}

/// A result per argument first + n * stride.
template <class Case>
__global__ void evaluate(Case function, std::uint64_t first, std::uint64_t stride,
                         std::uint64_t count, std::uint32_t* results) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t n = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; n < count;
       n += step) {
    results[n] = function(first + n * stride);
  }
}

struct Tally {
  unsigned long long differences;
  unsigned long long first;  // smallest index that differs
  Outcome outcome;           // there
};

template <class Case>
__global__ void count_differences(Case function, std::uint64_t stride, std::uint64_t count,
                                  Tally* tally) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t n = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; n < count;
       n += step) {
    const Outcome outcome = function(n * stride);
    if (outcome.expected == outcome.found) continue;
    atomicAdd(&tally->differences, 1ull);
    atomicMin(&tally->first, static_cast<unsigned long long>(n * stride));
  }
}

template <class Case>
__global__ void explain(Case function, Tally* tally) {
  tally->outcome = function(tally->first);
}

/// Counts and prints what the cases find.
class Report {
 public:
  explicit Report(bool quick) : quick_(quick) {
    check(cudaMalloc(&device_results_, kChunk * sizeof(std::uint32_t)), "cudaMalloc");
    check(cudaMallocHost(&host_results_, kChunk * sizeof(std::uint32_t)), "cudaMallocHost");
    check(cudaMalloc(&device_tally_, sizeof(Tally)), "cudaMalloc");
  }
  ~Report() {
    cudaFree(device_results_);
    cudaFreeHost(host_results_);
    cudaFree(device_tally_);
  }
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  /// The device's evaluation of a contract function against the host's.
  template <class Case>
  void same_on_host_and_device() {
    const auto start = std::chrono::steady_clock::now();
    const std::uint64_t stride = stride_of(Case::kCount);
    const std::uint64_t total = (Case::kCount + stride - 1) / stride;
    Tally tally{0, ~0ull, {0, 0}};
    for (std::uint64_t done = 0; done < total; done += kChunk) {
      const std::uint64_t count = std::min(kChunk, total - done);
      evaluate<<<blocks_for(count), kThreads>>>(Case{}, done * stride, stride, count,
                                                device_results_);
      check(cudaGetLastError(), Case::kName);
      check(cudaMemcpy(host_results_, device_results_, count * sizeof(std::uint32_t),
                       cudaMemcpyDeviceToHost),
            Case::kName);
      compare_with_host<Case>(done * stride, stride, count, tally);
    }
    print(Case::kName, total, tally, start);
  }

  /// An instruction against the contract function that it replaces.
  template <class Case>
  void instruction_agrees() {
    const auto start = std::chrono::steady_clock::now();
    const std::uint64_t stride = stride_of(Case::kCount);
    const std::uint64_t total = (Case::kCount + stride - 1) / stride;
    Tally tally{0, ~0ull, {0, 0}};
    check(cudaMemcpy(device_tally_, &tally, sizeof(tally), cudaMemcpyHostToDevice), Case::kName);
    count_differences<<<blocks_for(total), kThreads>>>(Case{}, stride, total, device_tally_);
    check(cudaGetLastError(), Case::kName);
    check(cudaMemcpy(&tally, device_tally_, sizeof(tally), cudaMemcpyDeviceToHost), Case::kName);
    if (tally.differences > 0) {
      explain<<<1, 1>>>(Case{}, device_tally_);
      check(cudaGetLastError(), Case::kName);
      check(cudaMemcpy(&tally, device_tally_, sizeof(tally), cudaMemcpyDeviceToHost), Case::kName);
    }
    print(Case::kName, total, tally, start);
  }

  [[nodiscard]] int cases() const { return cases_; }
  [[nodiscard]] int failed() const { return failed_; }

 private:
  [[nodiscard]] std::uint64_t stride_of(std::uint64_t count) const {
    return quick_ && count > kLargeDomain ? kQuickStride : 1;
  }

  template <class Case>
  void compare_with_host(std::uint64_t first, std::uint64_t stride, std::uint64_t count,
                         Tally& tally) const {
    const std::size_t workers = std::max(1u, std::thread::hardware_concurrency());
    std::vector<Tally> found(workers, Tally{0, ~0ull, {0, 0}});
    std::vector<std::thread> threads;
    for (std::size_t w = 0; w < workers; ++w) {
      threads.emplace_back([&, w] {
        const Case function;
        for (std::uint64_t n = count * w / workers; n < count * (w + 1) / workers; ++n) {
          const std::uint64_t index = first + n * stride;
          const std::uint32_t expected = function(index);
          if (expected == host_results_[n]) continue;
          if (found[w].differences++ == 0) {
            found[w].first = index;
            found[w].outcome = {expected, host_results_[n]};
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Tally& part : found) {
      if (part.first < tally.first) {
        tally.first = part.first;
        tally.outcome = part.outcome;
      }
      tally.differences += part.differences;
    }
  }

  void print(const char* name, std::uint64_t total, const Tally& tally,
             std::chrono::steady_clock::time_point start) {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    ++cases_;
    failed_ += tally.differences > 0 ? 1 : 0;
    std::printf("%-4s  %-58s %11llu arguments  %5.2f s\n", tally.differences > 0 ? "FAIL" : "ok",
                name, static_cast<unsigned long long>(total), elapsed.count());
    if (tally.differences > 0) {
      std::printf("      %llu differ, first at 0x%llx: expected 0x%08x, found 0x%08x\n",
                  tally.differences, tally.first, tally.outcome.expected, tally.outcome.found);
    }
    std::fflush(stdout);
  }

  bool quick_;
  int cases_ = 0;
  int failed_ = 0;
  std::uint32_t* device_results_ = nullptr;
  std::uint32_t* host_results_ = nullptr;
  Tally* device_tally_ = nullptr;
};

int run(bool quick) {
  int devices = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&devices);
      error != cudaSuccess || devices == 0) {
    std::printf("device_codec: no GPU (%s)\n", cudaGetErrorString(error));
    return kNoDevice;
  }
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  std::printf("device_codec on %s, contract version %d%s\n", device.name,
              numerics::kContractVersion, quick ? ", quick" : "");

  Report report(quick);
  std::printf("Instructions against the contract:\n");
  report.instruction_agrees<CvtE4m3x2>();
  report.instruction_agrees<CvtF16>();
  report.instruction_agrees<CvtBf16>();
  report.instruction_agrees<BlockOffsetRecipe>();
  report.instruction_agrees<NarrowRecipe>();
  report.instruction_agrees<WideRecipe>();
  report.instruction_agrees<NarrowWeights>();
  report.instruction_agrees<WideWeights>();

  std::printf("The contract on the device against the host:\n");
  report.same_on_host_and_device<EncodeE4m3>();
  report.same_on_host_and_device<DecodeE4m3>();
  report.same_on_host_and_device<RoundToHalf>();
  report.same_on_host_and_device<RoundToBfloat16>();
  report.same_on_host_and_device<WidenHalf>();
  report.same_on_host_and_device<BlockOffset>();
  report.same_on_host_and_device<ProbabilityCode>();
  report.same_on_host_and_device<WideProbabilityCode>();
  report.same_on_host_and_device<Exp2CodeUnits>();
  report.same_on_host_and_device<RowUpdates>();
  report.same_on_host_and_device<QuantizeQueriesAndKeys>();
  report.same_on_host_and_device<QuantizeValues>();
  report.same_on_host_and_device<SumsAndRotation>();
  report.same_on_host_and_device<ScoreScales>();
  report.same_on_host_and_device<ScorePlans>();

  std::printf("%d of %d cases equal\n", report.cases() - report.failed(), report.cases());
  return report.failed() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace openvc::exhaustive

int main(int argc, char** argv) {
  const bool quick = argc == 2 && std::strcmp(argv[1], "--quick") == 0;
  if (argc > 1 && !quick) {
    std::fprintf(stderr, "usage: device_codec [--quick]\n");
    return 2;
  }
  try {
    return openvc::exhaustive::run(quick);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "device_codec: %s\n", error.what());
    return 2;
  }
}
