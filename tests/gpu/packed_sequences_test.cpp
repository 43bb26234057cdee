// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "gpu/attention_fixture.hpp"
#include "gpu/prepare_case.hpp"

// Packed sequences from tensors to output: each is, bit for bit, a call of its own. On the model of
// the machine, and on a GPU.
namespace openvc::test {
namespace {

using Boundaries = std::vector<std::int32_t>;

/// What all calls share; `inputs` has the tokens of all sequences.
struct PackedCase {
  const AttentionKernel* kernel;
  PrepareCase inputs{};
  Mask mask = Mask::none;
  Boundaries of_q{};
  Boundaries of_k{};
};

PackedCase make_packed(const AttentionKernel* kernel, Boundaries of_q, Boundaries of_k) {
  PackedCase c{kernel};
  c.inputs.queries = of_q.back();
  c.inputs.keys = of_k.back();
  c.inputs.with_log_sum_exp = true;
  c.of_q = std::move(of_q);
  c.of_k = std::move(of_k);
  return c;
}

class DeviceBoundaries {
 public:
  explicit DeviceBoundaries(const Boundaries& numbers)
      : buffer_(numbers.size() * sizeof(numbers[0]), 0) {
    buffer_.upload(reinterpret_cast<const std::byte*>(numbers.data()), buffer_.size(), 0);
  }
  [[nodiscard]] const std::int32_t* data() const {
    return reinterpret_cast<const std::int32_t*>(buffer_.data());
  }

 private:
  DeviceBuffer buffer_;
};

/// The output of a request, between guards.
void run(const AttentionKernel& kernel, const schedule::PrepareRequest& request,
         const DeviceOutput& out) {
  const DeviceBuffer block(schedule::prepared_layout(request).bytes, kUnwritten);
  const DeviceBuffer workspace(cuda::prepare::workspace_bytes(request), kUnwritten);
  cuda::prepare::launch(request, block.data(), workspace.data(), nullptr);
  run_on_device(schedule::prepared_view(request, block.data()), out, true, nullptr, kernel);
  EXPECT_TRUE(block.guards_untouched());
  EXPECT_TRUE(workspace.guards_untouched());
}

schedule::PrepareRequest request_of(const PackedCase& c, const PrepareCase& inputs,
                                    const CaseTensors& tensors) {
  schedule::PrepareRequest request = device_request(inputs, tensors);
  request.format = c.kernel->format;
  request.problem.mask = c.mask;
  return request;
}

/// All sequences in one launch of each kernel, with room for the longest.
void run_packed(const PackedCase& c, const CaseTensors& tensors, const DeviceOutput& out,
                std::int64_t max_queries, std::int64_t max_keys) {
  const DeviceBoundaries of_q(c.of_q);
  const DeviceBoundaries of_k(c.of_k);
  schedule::PrepareRequest request = request_of(c, c.inputs, tensors);
  request.problem.batch = static_cast<std::int64_t>(c.of_q.size()) - 1;
  request.problem.queries = max_queries;
  request.problem.keys = max_keys;
  request.sequences = {.count = request.problem.batch,
                       .cu_seqlens_q = of_q.data(),
                       .cu_seqlens_k = of_k.data(),
                       .max_seqlen_q = max_queries,
                       .max_seqlen_k = max_keys};
  run(*c.kernel, request, out);
}

DeviceOutput output_of(const PrepareCase& inputs) {
  return {{.heads = inputs.heads, .queries = inputs.queries, .head_dim = inputs.head_dim},
          inputs.type};
}

/// Sequence `b` by itself.
AttentionResult run_alone(const PackedCase& c, const CaseTensors& of, std::size_t b) {
  PrepareCase one = c.inputs;
  one.queries = c.of_q[b + 1] - c.of_q[b];
  one.keys = c.of_k[b + 1] - c.of_k[b];
  CaseTensors tensors(one);
  const auto copy = [](TestTensor& to, const TestTensor& from, std::int64_t first) {
    to.fill([&](auto, auto s, auto h, auto channel) { return from.get(0, first + s, h, channel); });
  };
  copy(tensors.q, of.q, c.of_q[b]);
  copy(tensors.k, of.k, c.of_k[b]);
  copy(tensors.v, of.v, c.of_k[b]);
  tensors.device_q.upload(tensors.q);
  tensors.device_k.upload(tensors.k);
  tensors.device_v.upload(tensors.v);
  const DeviceOutput out = output_of(one);
  run(*c.kernel, request_of(c, one, tensors), out);
  return out.read();
}

void expect_calls_of_their_own(const PackedCase& c) {
  SCOPED_TRACE(c.inputs.describe());
  const CaseTensors tensors(c.inputs);
  const DeviceOutput out = output_of(c.inputs);
  const auto longest = [](const Boundaries& numbers) {
    std::int64_t most = 0;
    for (std::size_t b = 0; b + 1 < numbers.size(); ++b) {
      most = std::max<std::int64_t>(most, numbers[b + 1] - numbers[b]);
    }
    return most;
  };
  run_packed(c, tensors, out, longest(c.of_q), longest(c.of_k));
  EXPECT_EQ(out.fault(true), "");
  const AttentionResult all = out.read();
  const auto heads = static_cast<std::size_t>(c.inputs.heads);
  const std::size_t row = heads * static_cast<std::size_t>(c.inputs.head_dim);
  const auto tokens = static_cast<std::size_t>(c.inputs.queries);
  for (std::size_t b = 0; b + 1 < c.of_q.size(); ++b) {
    const auto first = static_cast<std::size_t>(c.of_q[b]);
    const auto queries = static_cast<std::size_t>(c.of_q[b + 1] - c.of_q[b]);
    const bool has_keys = c.of_k[b + 1] > c.of_k[b];
    if (queries == 0) continue;
    AttentionResult one{std::vector<float>(queries * row, 0.0f),
                        std::vector<float>(queries * heads, -numerics::infinity())};
    if (has_keys) one = run_alone(c, tensors, b);
    std::size_t unlike = 0;
    for (std::size_t i = 0; i < queries * row; ++i) {
      unlike += all.output[first * row + i] != one.output[i];
    }
    for (std::size_t i = 0; i < queries * heads; ++i) {
      const std::size_t place = i / queries * tokens + first + i % queries;
      unlike += all.log_sum_exp[place] != one.log_sum_exp[i];
    }
    EXPECT_EQ(unlike, 0u) << "in sequence " << b;
  }
}

class PackedAttention : public Sm90Test,
                        public testing::WithParamInterface<const AttentionKernel*> {};

INSTANTIATE_TEST_SUITE_P(Kernels, PackedAttention, testing::ValuesIn(kSmallKernels),
                         [](const auto& kernel) { return kernel.param->name; });

// Of more than one block of queries, without queries, of few, without keys.
const Boundaries kQueries{0, 270, 270, 278, 300};
const Boundaries kKeys{0, 129, 229, 330, 330};

TEST_P(PackedAttention, Dense) {
  PackedCase c = make_packed(GetParam(), kQueries, kKeys);
  expect_calls_of_their_own(c);
  c.inputs.heads_per_group = 2;
  c.inputs.head_dim = 64;
  c.inputs.layout = Layout::odd_pitch;
  expect_calls_of_their_own(c);
}

TEST_P(PackedAttention, Causal) {
  PackedCase c = make_packed(GetParam(), {0, 140, 150, 300}, {0, 129, 300, 330});
  c.mask = Mask::causal;
  expect_calls_of_their_own(c);
}

TEST_P(PackedAttention, ExtraStepsAndAxes) {
  PackedCase c = make_packed(GetParam(), {0, 140, 150}, {0, 129, 229});
  c.inputs.heads = 1;
  c.inputs.family = Family::outliers;
  c.inputs.numerics.rotation = Choice::always;
  expect_calls_of_their_own(c);
  c.inputs.numerics = all_steps(2);
  expect_calls_of_their_own(c);
}

/// The product behind the kernel; the second sequence is too short for it.
TEST_P(PackedAttention, ValuesOnAxes) {
  PackedCase c = make_packed(GetParam(), {0, 20, 90}, {0, 4'200, 4'300});
  c.inputs.heads = 1;
  c.inputs.family = Family::outliers;
  c.inputs.numerics.max_extra_steps = 0;
  c.inputs.numerics.value_axes = Choice::always;
  expect_calls_of_their_own(c);
}

/// Nothing outside of the tensors is written, and rows of no sequence are not either.
TEST_P(PackedAttention, BoundariesThatFitNoTensor) {
  constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  PackedCase c = make_packed(GetParam(), {0, 100}, {0, 200});
  const CaseTensors tensors(c.inputs);
  for (const auto& [of_q, of_k] :
       {std::pair<Boundaries, Boundaries>{{kLeast, 40, kMost, 20}, {150, kMost, kLeast, -3}},
        std::pair<Boundaries, Boundaries>{{90, 95, 60, 95}, {0, kMost, kMost, kMost}}}) {
    c.of_q = of_q;
    c.of_k = of_k;
    const DeviceOutput out = output_of(c.inputs);
    run_packed(c, tensors, out, 50, 130);
    const std::string fault = out.fault(true);
    EXPECT_TRUE(fault.empty() || fault.ends_with("left unwritten")) << fault;
  }
  const DeviceOutput out = output_of(c.inputs);
  c.of_q = {0, 30, 60};
  c.of_k = {0, 100, 200};
  run_packed(c, tensors, out, 30, 100);
  EXPECT_EQ(out.fault(true),
            std::to_string(40 * 2 * 128) + " elements of the output left unwritten");
}

}  // namespace
}  // namespace openvc::test
