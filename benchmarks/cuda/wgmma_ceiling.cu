// SPDX-License-Identifier: BSD-3-Clause
//
// What the tensor cores of a Hopper GPU sustain on E4M3 operands when a kernel does nothing else:
// the ceiling that the attention kernel is measured against. Random operands, because the card runs
// into its power limit and zeros cost less energy.
//
//   wgmma_ceiling [--seconds 1.0]      one JSON object on stdout
#include <cuda_runtime.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <thread>
#include <vector>

#include "arguments.hpp"
#include "cuda/gpu_sample.cuh"
#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/synchronize.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "numerics/e4m3.hpp"

namespace {

using openvc::cuda::check;
namespace ptx = openvc::cuda::ptx;

constexpr int kWarpgroup = 128;  // threads
constexpr int kWarpgroups = 2;
constexpr int kThreads = kWarpgroups * kWarpgroup;
constexpr int kRows = 64;       // of a product
constexpr int kRowBytes = 128;  // four k-steps, one row of the 128-byte swizzle
constexpr int kKStep = 32;      // E4M3 values, and bytes
constexpr int kKSteps = kRowBytes / kKStep;
constexpr int kStages = 4;  // different B tiles, as in a ring of key tiles
constexpr int kMaxColumns = 256;
constexpr int kABytes = kWarpgroups * kRows * kRowBytes;
constexpr int kSharedBytes = kABytes + kStages * kMaxColumns * kRowBytes;
constexpr int kAlignment = 1024;  // of a swizzled tile
constexpr int kProductsPerPass = kStages * kKSteps;

/// D binary32, 256 columns; A and B in shared memory.
__device__ __forceinline__ void wgmma_m64n256k32_f32_ss(float (&d)[128], std::uint64_t a,
                                                        std::uint64_t b, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,"
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,"
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63,"
      " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79,"
      " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95,"
      " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111,"
      " %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
      "%127},"
      " %128, %129, p, 1, 1;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]),
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]),
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]),
        "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]),
        "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]),
        "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]),
        "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]),
        "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]),
        "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
        "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]),
        "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]),
        "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), "+f"(d[120]), "+f"(d[121]),
        "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

/// 32-bit accumulators, as many columns as the instruction takes.
struct Fp32Accumulator {
  static constexpr const char* kName = "m64n256k32, FP32 accumulator";
  static constexpr int kColumns = 256;
  using Registers = float[128];
  __device__ static void multiply(Registers& d, std::uint64_t a, std::uint64_t b, bool accumulate) {
    wgmma_m64n256k32_f32_ss(d, a, b, accumulate);
  }
};

/// The product that makes the scores.
struct Fp16Accumulator {
  static constexpr const char* kName = "m64n128k32, FP16 accumulator";
  static constexpr int kColumns = 128;
  using Registers = std::uint32_t[32];
  __device__ static void multiply(Registers& d, std::uint64_t a, std::uint64_t b, bool accumulate) {
    ptx::wgmma_m64n128k32_f16_ss(d, a, b, accumulate);
  }
};

template <class Product>
__global__ void __launch_bounds__(kThreads, 1)
    multiply_forever(const uint4* operands, float* sink, int passes) {
  extern __shared__ __align__(kAlignment) std::uint8_t shared[];
  for (int i = threadIdx.x; i < kSharedBytes / static_cast<int>(sizeof(uint4)); i += kThreads) {
    reinterpret_cast<uint4*>(shared)[i] = operands[i];
  }
  ptx::fence_proxy_async_shared();
  __syncthreads();

  const int warpgroup = __shfl_sync(0xFFFFFFFFu, threadIdx.x / kWarpgroup, 0);
  const std::uint32_t base = ptx::shared_address(shared);
  const auto a =
      ptx::matrix_descriptor<ptx::Swizzle::bytes_128>(base + warpgroup * kRows * kRowBytes);
  const auto b = ptx::matrix_descriptor<ptx::Swizzle::bytes_128>(base + kABytes);
  typename Product::Registers d = {};
  // Not unrolled: of two passes in a row the assembler would drop the first, whose result the
  // second overwrites.
#pragma unroll 1
  for (int pass = 0; pass < passes; ++pass) {
    ptx::warpgroup_fence_operand(d);
    ptx::wgmma_fence();
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
#pragma unroll
      for (int step = 0; step < kKSteps; ++step) {
        // The accumulator restarts with every pass, as the scores do with every tile.
        Product::multiply(
            d, ptx::advance_descriptor(a, step * kKStep),
            ptx::advance_descriptor(b, stage * Product::kColumns * kRowBytes + step * kKStep),
            stage + step != 0);
      }
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<1>();
  }
  ptx::wgmma_wait_group<0>();
  ptx::warpgroup_fence_operand(d);
  float sum = 0.0f;
  for (const auto x : d) sum += static_cast<float>(x);
  sink[blockIdx.x * kThreads + threadIdx.x] = sum;
}

struct Ceiling {
  const char* name;
  double burst;      // TFLOP/s of the first launch
  double sustained;  // TFLOP/s
  openvc::benchmarks::GpuSample sample;
};

template <class Product>
Ceiling measure(const uint4* operands, float* sink, double seconds) {
  constexpr double kLaunchSeconds = 0.02;
  constexpr double kExpectedRate = 1.7e15;  // only sizes a launch
  const int blocks = openvc::cuda::device_info(0).multiprocessors;
  const double flops_per_pass = 2.0 * kRows * Product::kColumns * kKStep * kProductsPerPass *
                                kWarpgroups * static_cast<double>(blocks);
  const int passes = static_cast<int>(kLaunchSeconds * kExpectedRate / flops_per_pass);
  const auto kernel = multiply_forever<Product>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
        "reserving shared memory");
  cudaEvent_t events[4];
  for (cudaEvent_t& event : events) check(cudaEventCreate(&event), "creating an event");
  const auto launch = [&](int count) {
    for (int i = 0; i < count; ++i) {
      kernel<<<blocks, kThreads, kSharedBytes>>>(operands, sink, passes);
      check(cudaGetLastError(), "launching");
    }
  };
  const auto rate = [&](cudaEvent_t begin, cudaEvent_t end, int launches) {
    float milliseconds = 0.0f;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "reading an event");
    return flops_per_pass * passes * launches / milliseconds * 1e-9;
  };

  kernel<<<blocks, kThreads, kSharedBytes>>>(operands, sink, 1);  // loads the module
  check(cudaDeviceSynchronize(), "warming up");
  // As long again before the timed launches: the power limit takes some 100 ms to settle.
  const int count = std::max(2, static_cast<int>(seconds / kLaunchSeconds));
  check(cudaEventRecord(events[0]), "recording an event");
  launch(1);
  check(cudaEventRecord(events[1]), "recording an event");
  launch(count);
  check(cudaEventRecord(events[2]), "recording an event");
  launch(count);
  check(cudaEventRecord(events[3]), "recording an event");
  std::this_thread::sleep_for(std::chrono::duration<double>(1.5 * seconds));
  const openvc::benchmarks::GpuSample sample = openvc::benchmarks::sample_gpu(0);
  check(cudaDeviceSynchronize(), "multiplying");
  const Ceiling ceiling{Product::kName, rate(events[0], events[1], 1),
                        rate(events[2], events[3], count), sample};
  for (cudaEvent_t event : events) cudaEventDestroy(event);
  return ceiling;
}

std::vector<std::uint8_t> random_operands() {
  std::mt19937_64 generator(1);
  std::normal_distribution<float> normal;
  std::vector<std::uint8_t> bytes(kSharedBytes);
  for (auto& byte : bytes) byte = openvc::numerics::e4m3_encode(normal(generator));
  return bytes;
}

void run(double seconds) {
  const std::vector<std::uint8_t> bytes = random_operands();
  void* operands = nullptr;
  float* sink = nullptr;
  check(cudaMalloc(&operands, bytes.size()), "allocating operands");
  check(cudaMemcpy(operands, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "copying");
  const std::size_t threads =
      static_cast<std::size_t>(kThreads) *
      static_cast<std::size_t>(openvc::cuda::device_info(0).multiprocessors);
  check(cudaMalloc(&sink, threads * sizeof(float)), "allocating results");
  const auto* data = static_cast<const uint4*>(operands);
  const Ceiling ceilings[] = {measure<Fp32Accumulator>(data, sink, seconds),
                              measure<Fp16Accumulator>(data, sink, seconds)};
  std::printf("{\"seconds\": %g, \"products\": [", seconds);
  for (const Ceiling& c : ceilings) {
    std::printf(
        "%s{\"name\": \"%s\", \"burst_tflops\": %.1f, \"sustained_tflops\": %.1f, "
        "\"sm_clock_mhz\": %u, \"power_watts\": %.0f, \"throttle_reasons\": %llu}",
        &c == ceilings ? "" : ", ", c.name, c.burst, c.sustained, c.sample.sm_clock_mhz,
        c.sample.power_watts, static_cast<unsigned long long>(c.sample.throttle_reasons));
  }
  std::printf("]}\n");
  cudaFree(operands);
  cudaFree(sink);
}

}  // namespace

int main(int count, char** words) {
  double seconds = 1.0;
  openvc::benchmarks::Arguments arguments("wgmma_ceiling");
  arguments.above_zero("--seconds", seconds);
  if (!arguments.parse(count, words)) return 2;
  try {
    run(seconds);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "wgmma_ceiling: %s\n", error.what());
    return 1;
  }
  return 0;
}
