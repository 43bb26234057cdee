// SPDX-License-Identifier: BSD-3-Clause
#include "api/first_use_check.hpp"

#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <span>

#include "api/prepared.hpp"
#include "cpu/thread_pool.hpp"
#include "numerics/half.hpp"

namespace openvc::api {
namespace {

constexpr std::uint16_t kUnwritten = 0xFFFF;  // a NaN that no kernel writes

/// Numbers that are about normal, the same on every machine.
class CheckNumbers {
 public:
  explicit CheckNumbers(std::uint64_t seed) : state_(seed) {}

  float operator()() {
    // SplitMix64; the bytes of a number are uniform and independent.
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t bits = state_;
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
    bits ^= bits >> 31;
    constexpr int kBytes = 8;
    constexpr float kMean = 127.5f * kBytes;
    constexpr float kDeviation = 209.02f;  // sqrt(8 (256^2 - 1) / 12)
    int sum = 0;
    for (int i = 0; i < kBytes; ++i) sum += static_cast<int>(bits >> (8 * i) & 0xFF);
    return (static_cast<float>(sum) - kMean) / kDeviation;
  }

 private:
  std::uint64_t state_;
};

/// [1, tokens, heads, 128] of change(head, channel, x).
template <class Change>
std::vector<std::uint16_t> make_tensor(std::uint64_t seed, std::int64_t tokens, std::int64_t heads,
                                       const Change& change) {
  CheckNumbers next(seed);
  std::vector<std::uint16_t> all;
  all.reserve(static_cast<std::size_t>(tokens * heads * numerics::kHeadDim));
  for (std::int64_t token = 0; token < tokens; ++token) {
    for (std::int64_t head = 0; head < heads; ++head) {
      for (int channel = 0; channel < numerics::kHeadDim; ++channel) {
        all.push_back(numerics::float_to_bfloat16(change(head, channel, next())));
      }
    }
  }
  return all;
}

float unchanged(std::int64_t /*head*/, int /*channel*/, float x) { return x; }

FirstUseCase narrow_and_wide() {
  constexpr std::int64_t kQueries = 301;  // of two blocks, the second with a tail
  constexpr std::int64_t kKeys = 385;     // one more than three blocks
  constexpr std::int64_t kHeads = 2;
  constexpr float kWideGain = 30.0f;
  FirstUseCase c{.name = "a narrow and a wide head with residual columns"};
  c.problem = {.heads = kHeads, .queries = kQueries, .keys = kKeys};
  c.numerics.max_extra_steps = 2;
  c.numerics.score_error_target = 0.0f;  // takes both steps
  c.q = make_tensor(1, kQueries, kHeads,
                    [](auto head, auto, float x) { return head == 1 ? kWideGain * x : x; });
  c.k = make_tensor(2, kKeys, kHeads, unchanged);
  c.v = make_tensor(3, kKeys, kHeads, unchanged);
  // Scores of thousands of code units: a row rests on few keys, and their log-sum-exp is not
  // bounded in nats.
  constexpr cpu::Bounds kWide{
      .flipped = 0.5, .undecided_rows = 0.05, .log_sum_exp = std::numeric_limits<float>::max()};
  c.bounds = {cpu::kWithExtraSteps, kWide};
  return c;
}

FirstUseCase values_on_axes() {
  constexpr std::int64_t kQueries = 67;
  constexpr std::int64_t kKeys = numerics::kMinValueAxesKeys + 107;  // fewer have no axes
  constexpr int kPeriod = 21;  // of channels that stand out: the axes find them
  constexpr float kGain = 8.0f;
  FirstUseCase c{.name = "V on axes"};
  c.problem = {.queries = kQueries, .keys = kKeys};
  c.numerics.value_axes = Choice::always;
  c.q = make_tensor(4, kQueries, 1, unchanged);
  c.k = make_tensor(5, kKeys, 1, unchanged);
  c.v = make_tensor(6, kKeys, 1, [](auto, int channel, float x) {
    return channel % kPeriod == 4 ? kGain * x + 1.0f : x;
  });
  c.bounds = {cpu::Bounds{}};
  return c;
}

std::int64_t log_sum_exp_count(const schedule::Problem& p) { return p.batch_heads() * p.queries; }

MutableTensorView output_view(const schedule::PrepareRequest& request, void* data) {
  MutableTensorView out;
  out.data = data;
  out.type = request.q.type;
  out.device = request.q.device;
  out.shape = request.q.shape;
  out.strides = contiguous_strides(out.shape);
  return out;
}

/// Prepares and runs; the tensors, the output and the log-sum-exp are the device's.
void call(const Backend& backend, schedule::PrepareRequest request, void* out, float* log_sum_exp,
          const Execution& execution) {
  request.format = backend.format;
  Prepared::Impl prepared;
  prepared.backend = &backend;
  prepared.type = request.q.type;
  prepared.device = request.q.device;
  backend.prepare(request, execution, prepared);
  backend.run(prepared, output_view(request, out), log_sum_exp, execution);
}

cpu::AttentionResult decode(std::span<const std::uint16_t> out, std::vector<float> log_sum_exp) {
  cpu::AttentionResult result;
  result.output.reserve(out.size());
  for (const std::uint16_t bits : out) result.output.push_back(numerics::bfloat16_to_float(bits));
  result.log_sum_exp = std::move(log_sum_exp);
  return result;
}

cpu::AttentionResult run_on_cpu(const FirstUseCase& c) {
  std::vector<std::uint16_t> out(c.q.size(), kUnwritten);
  std::vector<float> log_sum_exp(static_cast<std::size_t>(log_sum_exp_count(c.problem)));
  Execution execution;
  execution.threads = 1;
  call(kCpuBackend, c.request(), out.data(), log_sum_exp.data(), execution);
  return decode(out, std::move(log_sum_exp));
}

cpu::AttentionResult run_on_device(const FirstUseCase& c, const Backend& backend, Device device) {
  const DeviceAccess& access = *backend.access;
  std::vector<std::uint16_t> out(c.q.size(), kUnwritten);
  std::vector<float> log_sum_exp(static_cast<std::size_t>(log_sum_exp_count(c.problem)),
                                 std::numeric_limits<float>::quiet_NaN());
  access.on_own_stream(device.index, [&](void* stream) {
    schedule::PrepareRequest request = c.request();
    std::vector<std::shared_ptr<std::byte>> owners;
    const auto place = [&](std::span<const std::byte> bytes) {
      owners.push_back(access.upload(bytes, device.index, stream));
      return owners.back().get();
    };
    const auto fetch = [&](std::span<std::byte> to, const std::byte* from) {
      const auto bytes = access.download(from, to.size(), device.index, stream);
      std::memcpy(to.data(), bytes.data(), to.size());
    };
    request.q.data = place(std::as_bytes(std::span(c.q)));
    request.k.data = place(std::as_bytes(std::span(c.k)));
    request.v.data = place(std::as_bytes(std::span(c.v)));
    for (TensorView* tensor : {&request.q, &request.k, &request.v}) tensor->device = device;
    std::byte* device_out = place(std::as_bytes(std::span(out)));
    std::byte* device_logs = place(std::as_bytes(std::span(log_sum_exp)));
    Execution execution;
    execution.stream = stream;
    call(backend, request, device_out, reinterpret_cast<float*>(device_logs), execution);
    fetch(std::as_writable_bytes(std::span(out)), device_out);
    fetch(std::as_writable_bytes(std::span(log_sum_exp)), device_logs);
  });
  return decode(out, std::move(log_sum_exp));
}

}  // namespace

schedule::PrepareRequest FirstUseCase::request() const {
  const auto view = [&](const std::vector<std::uint16_t>& tensor, std::int64_t tokens) {
    TensorView result;
    result.data = tensor.data();
    result.type = ElementType::bfloat16;
    result.shape = {1, tokens, problem.heads, numerics::kHeadDim};
    result.strides = contiguous_strides(result.shape);
    return result;
  };
  schedule::PrepareRequest result;
  result.q = view(q, problem.queries);
  result.k = view(k, problem.keys);
  result.v = view(v, problem.keys);
  result.problem = problem;
  result.softmax_scale = 0.08838834764831845f;  // 1 / sqrt(128)
  result.numerics = numerics;
  result.with_log_sum_exp = true;
  return result;
}

std::vector<FirstUseCase> first_use_cases() { return {narrow_and_wide(), values_on_axes()}; }

std::string first_use_fault(const Backend& backend, Device device) {
  // Nothing of the caller's runs inside: it might call the library again, which waits for the
  // check.
  const std::function<void()> nobody;
  const cpu::InterruptScope interrupts(nobody);
  for (const FirstUseCase& c : first_use_cases()) {
    const cpu::AttentionResult expected = run_on_cpu(c);
    const cpu::AttentionResult actual = run_on_device(c, backend, device);
    for (std::size_t head = 0; head < c.bounds.size(); ++head) {
      const std::string found = cpu::head_disagreement(
          c.problem, actual, expected, static_cast<std::int64_t>(head), c.bounds[head]);
      if (!found.empty()) return std::string(c.name) + ", " + found;
    }
  }
  return {};
}

}  // namespace openvc::api
