// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gpu/agreement.hpp"
#include "gpu/attention_pair.hpp"
#include "gpu/prepare_case.hpp"
#include "openvc/attention.hpp"

// One call of the public interface, on the tensors of a case in host and in device memory.
namespace openvc::test {

struct ApiCase {
  PrepareCase inputs;  // its numerics and repair budget are those of the call
  Mask mask = Mask::none;
  KeyOrder key_order = KeyOrder::mid_window;

  [[nodiscard]] AttentionOptions options() const {
    AttentionOptions all;
    all.mask = mask;
    all.key_order = key_order;
    all.numerics = inputs.numerics;
    return all;
  }

  /// What decides how far results may be apart.
  [[nodiscard]] schedule::Problem problem() const {
    schedule::Problem p;
    p.batch = inputs.batch;
    p.heads = inputs.heads;
    p.queries = inputs.queries;
    p.keys = inputs.keys;
    p.head_dim = inputs.head_dim;
    p.heads_per_group = inputs.heads_per_group;
    p.mask = mask;
    return p;
  }

  [[nodiscard]] std::string describe() const {
    return inputs.describe() + (mask == Mask::causal ? " causal" : "") +
           (key_order == KeyOrder::descending ? " descending" : "");
  }
};

inline ApiCase make_api_case(std::int64_t queries, std::int64_t keys, Mask mask = Mask::none) {
  ApiCase c;
  c.inputs.queries = queries;
  c.inputs.keys = keys;
  c.mask = mask;
  return c;
}

/// The call on host tensors: what the device is compared with.
inline AttentionResult call_on_cpu(const ApiCase& c, const CaseTensors& tensors) {
  const TensorView q = tensors.q.view();
  TestTensor out(q.type, q.shape);
  AttentionResult result;
  result.log_sum_exp.resize(static_cast<std::size_t>(c.problem().batch_heads() * c.inputs.queries));
  const auto prepared = prepare_repair(q, tensors.k.view(), tensors.v.view(),
                                       c.inputs.repair_budget, c.options(), true);
  attention_prepared(prepared, out.mutable_view(), result.log_sum_exp.data());
  out.for_each([&](std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t channel) {
    result.output.push_back(out.get(b, s, h, channel));
  });
  return result;
}

/// The call on device tensors. With a repair budget it takes the two steps that repair needs.
inline void call_on_device(const ApiCase& c, const CaseTensors& tensors, const DeviceOutput& out,
                           const Execution& execution = {}) {
  const TensorView& q = tensors.device_q.view();
  const TensorView& k = tensors.device_k.view();
  const TensorView& v = tensors.device_v.view();
  if (c.inputs.repair_budget > 0.0) {
    attention_prepared(
        prepare_repair(q, k, v, c.inputs.repair_budget, c.options(), true, execution), out.view(),
        out.log_sum_exp(), execution);
  } else {
    attention(q, k, v, out.view(), out.log_sum_exp(), c.options(), execution);
  }
}

/// The call on both sides: agreement, guards, every element written.
inline void expect_agreement_with_cpu(const ApiCase& c, const Bounds& bounds = {}) {
  SCOPED_TRACE(c.describe());
  const CaseTensors tensors(c.inputs);
  const DeviceOutput out(c.problem(), c.inputs.type);
  call_on_device(c, tensors, out);
  cuda::check(cudaDeviceSynchronize(), "running attention");
  EXPECT_EQ(out.fault(true), "");
  EXPECT_EQ(disagreement(c.problem(), out.read(), call_on_cpu(c, tensors), bounds), "");
}

/// Lengths that are multiples of nothing, and extra steps in every head.
inline ApiCase small_case(double repair_budget = 0.0) {
  ApiCase c = make_api_case(700, 900);
  c.inputs.heads = 3;
  c.inputs.repair_budget = repair_budget;
  c.inputs.numerics.score_error_target = 0.0f;
  return c;
}

/// What the call writes, output and log-sum-exp, on the first device.
inline std::vector<std::byte> expected_bytes(const ApiCase& c, const CaseTensors& tensors) {
  const DeviceOutput out(c.problem(), c.inputs.type);
  call_on_device(c, tensors, out);
  cuda::check(cudaDeviceSynchronize(), "running attention");
  EXPECT_EQ(out.fault(true), "");
  return out.bytes();
}

/// The openvc::Error of a call that must throw one.
template <class Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode::device_failure, "nothing was thrown"};
}

}  // namespace openvc::test
