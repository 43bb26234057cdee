// SPDX-License-Identifier: BSD-3-Clause
//
// By how many units of the last place ex2.approx.ftz.f32 and logf of a GPU differ from the results
// that are rounded to nearest. The model of the machine has ex2.approx of Hopper from such a record
// (model/machine/ex2.cpp), and the host's logf.
//
//   ex2_rounding <file> [<file of all fractions>]        counts as one JSON object on stdout
//
// The file: signed bytes, one for each of the 65,536 binary16 numbers h, of 2^(h / 8), which are
// the weights of narrow heads; then one for each k below 65,536, of 2^(k / 65536). The other file:
// one for each k below 2^23, of 2^(k / 2^23).
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/device_data.cuh"
#include "cuda/host/check.hpp"
#include "cuda/ptx/ex2.cuh"
#include "numerics/bits.hpp"
#include "numerics/half.hpp"

namespace {

using openvc::benchmarks::Buffer;
using openvc::cuda::check;
namespace numerics = openvc::numerics;

enum class Function { ex2, logarithm };

__global__ void evaluate(Function function, const float* x, float* y, int count) {
  const int stride = static_cast<int>(gridDim.x * blockDim.x);
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < count; i += stride) {
    y[i] = function == Function::ex2 ? openvc::cuda::ptx::ex2_approx(x[i]) : logf(x[i]);
  }
}

std::vector<float> on_device(Function function, const std::vector<float>& x) {
  const std::size_t bytes = x.size() * sizeof(float);
  const Buffer in(bytes);
  const Buffer out(bytes);
  check(cudaMemcpy(in.get(), x.data(), bytes, cudaMemcpyHostToDevice), "copying arguments");
  evaluate<<<1024, 256>>>(function, in.get<float>(), out.get<float>(), static_cast<int>(x.size()));
  check(cudaGetLastError(), "evaluating");
  std::vector<float> y(x.size());
  check(cudaMemcpy(y.data(), out.get(), bytes, cudaMemcpyDeviceToHost), "copying results");
  return y;
}

float flushed(float x) {
  return std::fabs(x) < numerics::exp2_int(numerics::kFloatMinNormalExponent)
             ? std::copysign(0.0f, x)
             : x;
}

float nearest(Function function, float x) {
  if (function == Function::logarithm) return static_cast<float>(std::log(double{x}));
  return flushed(static_cast<float>(std::exp2(double{flushed(x)})));
}

/// In units of the last place, up to 127; 0 for two NaNs.
std::vector<std::int8_t> differences(Function function, const std::vector<float>& x) {
  const std::vector<float> y = on_device(function, x);
  std::vector<std::int8_t> result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float expected = nearest(function, x[i]);
    if (y[i] != y[i] && expected != expected) continue;
    const auto ordered = [](float value) {
      const auto size = static_cast<std::int64_t>(numerics::magnitude_bits(value));
      return std::signbit(value) ? -size : size;
    };
    result[i] = static_cast<std::int8_t>(
        std::clamp<std::int64_t>(ordered(y[i]) - ordered(expected), -127, 127));
  }
  return result;
}

void print_counts(const char* name, const std::vector<std::int8_t>& values) {
  std::map<int, long> counts;
  for (const std::int8_t value : values) ++counts[value];
  std::printf("  \"%s\": {", name);
  const char* separator = "";
  for (const auto& [value, count] : counts) {
    std::printf("%s\"%d\": %ld", separator, value, count);
    separator = ", ";
  }
  std::printf("},\n");
}

void append(const std::string& path, const std::vector<std::int8_t>& values) {
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size()));
  if (!file.flush()) throw std::runtime_error(path + ": could not be written");
}

void run(const std::string& path, const std::string& all_path) {
  constexpr int kHalves = 1 << 16;
  constexpr int kFractionBits = 16;
  constexpr int kFractions = 1 << kFractionBits;
  std::vector<float> x(kHalves);
  for (int i = 0; i < kHalves; ++i) {
    x[i] = numerics::half_to_float(static_cast<std::uint16_t>(i)) / 8;
  }
  std::remove(path.c_str());
  const auto halves = differences(Function::ex2, x);
  append(path, halves);
  for (int i = 0; i < kFractions; ++i) x[i] = static_cast<float>(i) / kFractions;
  const auto fractions = differences(Function::ex2, x);
  append(path, fractions);
  std::printf("{\n");
  print_counts("ex2_of_halves", halves);
  print_counts("ex2_of_fractions_16", fractions);

  // Whether the fraction alone decides.
  std::mt19937 random(1);
  constexpr int kSamples = 1 << 22;
  std::vector<int> places(kSamples);
  x.resize(kSamples);
  for (int i = 0; i < kSamples; ++i) {
    places[i] = static_cast<int>(random() % kFractions);
    const int whole = static_cast<int>(random() % 240) - 120;
    x[i] = static_cast<float>(whole) + static_cast<float>(places[i]) / kFractions;
  }
  const auto shifted = differences(Function::ex2, x);
  long unlike = 0;
  for (int i = 0; i < kSamples; ++i) unlike += shifted[i] != fractions[places[i]];
  std::printf("  \"unlike_their_fraction\": %ld,\n  \"of\": %d,\n", unlike, kSamples);

  constexpr int kAll = 1 << numerics::kFloatMantissaBits;
  x.resize(kAll);
  for (int i = 0; i < kAll; ++i) x[i] = static_cast<float>(i) / kAll;
  const auto all = differences(Function::ex2, x);
  print_counts("ex2_of_fractions_23", all);
  for (float& value : x) value += 1;
  const auto next = differences(Function::ex2, x);
  unlike = 0;
  for (int i = 0; i < kAll; ++i) unlike += all[i] != next[i];
  std::printf("  \"unlike_one_octave_above\": %ld,\n", unlike);
  if (!all_path.empty()) {
    std::remove(all_path.c_str());
    append(all_path, all);
  }

  // Sums of weights, which are positive.
  for (float& value : x)
    value = std::ldexp(1.0f + static_cast<float>(random()) * 0x1p-32f,
                       static_cast<int>(random() % 64) - 32);
  print_counts("logf", differences(Function::logarithm, x));
  std::printf("  \"results\": \"device - nearest, units of the last place: how many\"\n}\n");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2 || argc > 3) {
      std::fprintf(stderr, "usage: ex2_rounding <file> [<file of all fractions>]\n");
      return 2;
    }
    run(argv[1], argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ex2_rounding: %s\n", error.what());
    return 1;
  }
  return 0;
}
