// SPDX-License-Identifier: BSD-3-Clause
//
// Configurations of the Hopper kernel side by side: on small problems the shipped kernel against
// the contract and every other against its bytes, then sustained speed. What docs/kernels/sm90.md
// reports about choices comes from here.
//
//   kernel_variants [--seconds 1.0] [--shapes 73472x7,32768x16] [--variants 0,1,...] [--causal]
//                   [--descending] [--no-checks]
#include <cuda_runtime.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "arguments.hpp"
#include "cpu/prepare.hpp"
#include "cuda/attention/arguments.hpp"
#include "cuda/gpu_sample.cuh"
#include "cuda/sm90/launch.hpp"
#include "cuda/sm90/launch_kernel.cuh"
#include "gpu/contract_rows.hpp"
#include "numerics/half.hpp"

namespace {

using namespace openvc;
using openvc::cuda::check;

/// Standard normal numbers as bfloat16, by counter: the same whatever the number of threads.
void fill_normal(std::vector<std::uint16_t>& out, std::uint64_t seed) {
  const auto mix = [](std::uint64_t x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
  };
  const unsigned threads = std::thread::hardware_concurrency();
  std::vector<std::jthread> pool;
  for (unsigned t = 0; t < threads; ++t) {
    pool.emplace_back([&, t] {
      for (std::size_t i = t; 2 * i + 1 < out.size(); i += threads) {
        const std::uint64_t bits = mix(seed * 0x1234567ull + i);
        const double u = (static_cast<double>(bits >> 40) + 0.5) * 0x1p-24;
        const double v = static_cast<double>(bits & 0xFFFFFFull) * 0x1p-24;
        const double radius = std::sqrt(-2.0 * std::log(u));
        out[2 * i] = numerics::float_to_bfloat16(
            static_cast<float>(radius * std::cos(6.283185307179586 * v)));
        out[2 * i + 1] = numerics::float_to_bfloat16(
            static_cast<float>(radius * std::sin(6.283185307179586 * v)));
      }
    });
  }
}

struct Case {
  schedule::Problem problem;
  int max_extra_steps = 0;
  float softmax_scale = 0.08838834764831845f;
  float score_error_target = 0.0f;  // 0: take all the steps that are allowed
  float query_gain = 1.0f;          // multiplies Q: large logits
  bool log_sum_exp = true;
};

/// Prepared inputs on the host and on the device.
struct Prepared {
  schedule::PreparedView host;
  schedule::PreparedView device;
  std::vector<std::byte> storage;
  void* device_data = nullptr;

  explicit Prepared(const Case& c) {
    const schedule::Problem& p = c.problem;
    std::vector<std::uint16_t> q(p.batch_heads() * p.queries * 128);
    std::vector<std::uint16_t> k(p.batch_heads() * p.keys * 128);
    std::vector<std::uint16_t> v(k.size());
    fill_normal(q, 1);
    fill_normal(k, 2);
    fill_normal(v, 3);
    if (c.query_gain != 1.0f) {
      for (auto& x : q) {
        x = numerics::float_to_bfloat16(numerics::bfloat16_to_float(x) * c.query_gain);
      }
    }
    const auto view = [&](const std::vector<std::uint16_t>& data, std::int64_t rows) {
      TensorView t{.data = data.data(), .shape = {p.batch, rows, p.heads, 128}};
      t.strides = contiguous_strides(t.shape);
      return t;
    };
    schedule::PrepareRequest request{.q = view(q, p.queries),
                                     .k = view(k, p.keys),
                                     .v = view(v, p.keys),
                                     .problem = p,
                                     .softmax_scale = c.softmax_scale,
                                     .with_log_sum_exp = c.log_sum_exp,
                                     .format = cuda::sm90::kPackedFormat};
    request.numerics.max_extra_steps = c.max_extra_steps;
    request.numerics.score_error_target = c.score_error_target;
    request.numerics.rotation = Choice::never;
    host = schedule::prepared_view(request, nullptr);
    storage.resize(host.layout.bytes + schedule::kSectionAlignment);
    auto* block = storage.data() +
                  (schedule::kSectionAlignment -
                   reinterpret_cast<std::uintptr_t>(storage.data()) % schedule::kSectionAlignment) %
                      schedule::kSectionAlignment;
    cpu::prepare(request, block, *cpu::shared_pool(0));
    host.data = block;
    check(cudaMalloc(&device_data, host.layout.bytes), "allocating prepared inputs");
    check(cudaMemcpy(device_data, block, host.layout.bytes, cudaMemcpyHostToDevice), "copying");
    device = host;
    device.data = static_cast<const std::byte*>(device_data);
  }
  ~Prepared() { cudaFree(device_data); }
};

struct Output {
  void* data = nullptr;
  float* lse = nullptr;
  MutableTensorView view;

  explicit Output(const schedule::Problem& p) {
    view.shape = {p.batch, p.queries, p.heads, 128};
    view.strides = contiguous_strides(view.shape);
    view.device = {DeviceType::cuda, 0};
    check(cudaMalloc(&data, bytes()), "allocating the output");
    check(cudaMalloc(&lse, p.batch_heads() * p.queries * sizeof(float)), "allocating the LSE");
    view.data = data;
  }
  ~Output() {
    cudaFree(data);
    cudaFree(lse);
  }
  [[nodiscard]] std::size_t bytes() const {
    return view.shape[0] * view.shape[1] * view.shape[2] * 128 * 2;
  }
};

constexpr cuda::KernelConfig kConfigs[] = {
    {.cluster_size = 1},
    {.key_stages = 4, .value_stages = 4},
};

template <std::size_t kIndex>
struct Config : cuda::sm90::Hopper {
  static constexpr cuda::KernelConfig kValue = kConfigs[kIndex];
};

template <class Config>
void launch(const schedule::PreparedView& inputs, const Output& out, bool lse) {
  cuda::sm90::launch_kernel<Config>(
      cuda::make_parameters({inputs, out.view, lse ? out.lse : nullptr}, cuda::sm90::kTileShape),
      cuda::device_info(0), nullptr);
}

void launch_product(const schedule::PreparedView& inputs, const Output& out, bool lse) {
  cuda::sm90::launch(inputs, out.view, lse ? out.lse : nullptr, nullptr);
}

using Launch = void (*)(const schedule::PreparedView&, const Output&, bool);
struct Variant {
  std::string name;
  Launch launch;
  int max_extra_steps;
  bool causal;  // has masks; the shipped kernel has both

  [[nodiscard]] bool serves(Mask mask, int steps) const {
    return steps <= max_extra_steps && (mask == Mask::none || causal);
  }
};

/// The kernel as it is shipped, then configurations to compare it with.
std::vector<Variant> all_variants() {
  std::vector<Variant> variants;
  variants.push_back({"shipped", launch_product, numerics::kMaxExtraSteps, true});
  [&]<std::size_t... kIndices>(std::index_sequence<kIndices...>) {
    const auto add = [&](const cuda::KernelConfig& c, Launch function) {
      variants.push_back({"cluster " + std::to_string(c.cluster_size) + ", stages " +
                              std::to_string(c.key_stages) + "/" + std::to_string(c.value_stages),
                          function, c.max_extra_steps, c.causal});
    };
    (add(kConfigs[kIndices], launch<Config<kIndices>>), ...);
  }
  (std::make_index_sequence<std::size(kConfigs)>{});
  return variants;
}

/// Output and log-sum-exp on the host.
struct Result {
  std::vector<std::uint16_t> output;
  std::vector<float> lse;

  bool operator==(const Result& other) const {
    return output == other.output &&
           std::memcmp(lse.data(), other.lse.data(), lse.size() * sizeof(float)) == 0;
  }
};

Result run(const Variant& variant, const Prepared& prepared) {
  const schedule::Problem& p = prepared.host.problem;
  const Output out(p);
  check(cudaMemset(out.data, 0xFF, out.bytes()), "poisoning");
  variant.launch(prepared.device, out, true);
  check(cudaDeviceSynchronize(), "running");
  Result result{std::vector<std::uint16_t>(out.bytes() / 2),
                std::vector<float>(p.batch_heads() * p.queries)};
  check(cudaMemcpy(result.output.data(), out.data, out.bytes(), cudaMemcpyDeviceToHost), "copying");
  check(cudaMemcpy(result.lse.data(), out.lse, result.lse.size() * 4, cudaMemcpyDeviceToHost),
        "copying");
  return result;
}

/// The shipped kernel against the contract: relative L2 over sampled rows, largest LSE error.
void verify(const Result& found, const Prepared& prepared, const char* name) {
  const schedule::Problem& p = prepared.host.problem;
  const auto& [result, lse] = found;
  double error = 0.0, norm = 0.0, lse_error = 0.0;
  std::size_t bad = 0;
  for (const auto x : result) bad += !numerics::is_finite(numerics::bfloat16_to_float(x));
  const std::int64_t rows = std::min<std::int64_t>(p.queries, 24);
  for (std::int64_t bh = 0; bh < p.batch_heads(); ++bh) {
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t row = rows == 1 ? 0 : i * (p.queries - 1) / (rows - 1);
      const auto expected = test::contract_row(prepared.host, bh, row);
      const std::int64_t b = bh / p.heads, h = bh % p.heads;
      for (int d = 0; d < 128; ++d) {
        const double x =
            numerics::bfloat16_to_float(result[((b * p.queries + row) * p.heads + h) * 128 + d]);
        error += (x - expected.output[d]) * (x - expected.output[d]);
        norm += expected.output[d] * expected.output[d];
      }
      const double difference = std::fabs(lse[bh * p.queries + row] - expected.log_sum_exp);
      if (!(difference <= lse_error)) lse_error = difference;
    }
  }
  const double relative = std::sqrt(error / norm);
  const bool ok = relative < 0.02 && bad == 0;
  if (!ok) {
    std::printf("  FAIL %-28s rel L2 %.5f  LSE %.5f  non-finite %zu\n", name, relative, lse_error,
                bad);
  } else {
    std::printf("  ok   %-28s rel L2 %.5f  LSE %.5f\n", name, relative, lse_error);
  }
  std::fflush(stdout);
}

void time_variant(const Variant& variant, const Prepared& prepared, const Output& out,
                  double seconds, double flops) {
  cudaEvent_t begin, middle, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&middle), "event");
  check(cudaEventCreate(&end), "event");
  variant.launch(prepared.device, out, false);
  check(cudaDeviceSynchronize(), "warming up");
  cudaEventRecord(begin);
  variant.launch(prepared.device, out, false);
  cudaEventRecord(end);
  check(cudaDeviceSynchronize(), "first launch");
  float first = 0;
  cudaEventElapsedTime(&first, begin, end);
  const int count = std::max(4, static_cast<int>(seconds * 1e3 / first));
  for (int i = 0; i < count; ++i) {
    if (i == count / 2) cudaEventRecord(middle);
    variant.launch(prepared.device, out, false);
  }
  cudaEventRecord(end);
  std::this_thread::sleep_for(std::chrono::duration<double>(0.8 * seconds));
  const benchmarks::GpuSample sample = benchmarks::sample_gpu(0);
  check(cudaDeviceSynchronize(), "timing");
  float sustained = 0;
  cudaEventElapsedTime(&sustained, middle, end);
  sustained /= static_cast<float>(count - count / 2);
  std::printf("  %8.3f ms  %7.1f TFLOP/s sustained  %7.1f first  %5u MHz  %5.0f W  %s\n", sustained,
              flops / sustained * 1e-9, flops / first * 1e-9, sample.sm_clock_mhz,
              sample.power_watts, variant.name.c_str());
  std::fflush(stdout);
  cudaEventDestroy(begin);
  cudaEventDestroy(middle);
  cudaEventDestroy(end);
}

}  // namespace

int main(int count, char** words) {
  double seconds = 1.0;
  std::vector<openvc::benchmarks::Shape> shapes = {{73472, 7}, {32768, 16}};
  const std::vector<Variant> all = all_variants();
  std::vector<std::size_t> selected;
  bool checks = true;
  bool causal = false;
  bool descending = false;
  openvc::benchmarks::Arguments arguments("kernel_variants");
  arguments.above_zero("--seconds", seconds);
  arguments.shapes("--shapes", shapes);
  arguments.indices("--variants", all.size(), selected);
  arguments.flag("--causal", causal);
  arguments.flag("--descending", descending);
  arguments.flag("--no-checks", checks, false);
  if (!arguments.parse(count, words)) return 2;
  const KeyOrder order = descending ? KeyOrder::descending : KeyOrder::mid_window;
  std::vector<Variant> variants = all;
  if (!selected.empty()) {
    variants.clear();
    for (const std::size_t index : selected) variants.push_back(all[index]);
  }
  const auto problem = [&](std::int64_t b, std::int64_t h, std::int64_t sq, std::int64_t sk) {
    return schedule::Problem{.batch = b, .heads = h, .queries = sq, .keys = sk, .key_order = order};
  };
  if (checks) {
    std::vector<std::pair<const char*, Case>> cases;
    cases.push_back({"1x1", {problem(1, 1, 1, 1)}});
    cases.push_back({"1x128", {problem(1, 1, 1, 128)}});
    cases.push_back({"129x129 h2", {problem(1, 2, 129, 129)}});
    cases.push_back({"255x300 b2 h3", {problem(2, 3, 255, 300)}});
    cases.push_back({"257x511", {problem(1, 1, 257, 511)}});
    cases.push_back({"640x640", {problem(1, 1, 640, 640)}});
    cases.push_back({"1000x1000 h4", {problem(1, 4, 1000, 1000)}});
    cases.push_back({"4097x4097 h3", {problem(1, 3, 4097, 4097)}});
    cases.push_back(
        {"1000x1000 gain 30", {.problem = problem(1, 1, 1000, 1000), .query_gain = 30.0f}});
    cases.push_back(
        {"1000x1000 gain 3000", {.problem = problem(1, 1, 1000, 1000), .query_gain = 3000.0f}});
    cases.push_back(
        {"1000x1000 gain 1e-3", {.problem = problem(1, 1, 1000, 1000), .query_gain = 1e-3f}});
    auto masked = problem(1, 1, 1000, 1000);
    masked.mask = Mask::causal;
    cases.push_back({"1000x1000 causal", {masked}});
    masked.keys = 700;
    cases.push_back({"1000x700 causal", {masked}});
    for (const int steps : {1, 2, 4}) {
      cases.push_back({steps == 1   ? "513x700 steps 1"
                       : steps == 2 ? "513x700 steps 2"
                                    : "513x700 steps 4",
                       {.problem = problem(1, 2, 513, 700), .max_extra_steps = steps}});
    }
    for (const auto& [name, c] : cases) {
      const Prepared prepared(c);
      std::printf("%s\n", name);
      const Result shipped = run(all.front(), prepared);
      verify(shipped, prepared, name);
      for (const Variant& variant : variants) {
        if (!variant.serves(c.problem.mask, c.max_extra_steps)) continue;
        const bool same = run(variant, prepared) == shipped;
        std::printf("  %s [%s]\n", same ? "ok   the same bytes" : "FAIL other bytes",
                    variant.name.c_str());
      }
    }
  }
  for (const auto& [s, h] : shapes) {
    for (const int steps : {0, 1, 2, 4}) {
      std::vector<Variant> chosen;
      const Mask mask = causal ? Mask::causal : Mask::none;
      for (const Variant& v : variants) {
        if (v.serves(mask, steps)) chosen.push_back(v);
      }
      if (chosen.empty()) continue;
      schedule::Problem timed = problem(1, h, s, s);
      timed.mask = mask;
      const Prepared prepared({.problem = timed, .max_extra_steps = steps, .log_sum_exp = false});
      const Output out(prepared.host.problem);
      std::printf("%lldx%lld%s, %d extra steps\n", static_cast<long long>(s),
                  static_cast<long long>(h), causal ? " causal" : "", steps);
      // Of a causal call, the scores that rows see count: half.
      const double share = causal ? 0.5 : 1.0;
      const double flops = share * 4.0 * static_cast<double>(s) * s * h * numerics::kHeadDim;
      for (const Variant& v : chosen) time_variant(v, prepared, out, seconds, flops);
    }
  }
  return 0;
}
