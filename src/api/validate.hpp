// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "openvc/options.hpp"
#include "openvc/status.hpp"
#include "openvc/tensor_view.hpp"

// The input contract, as pure functions. Nothing here touches the elements of a tensor.
//
// Every message has the same shape: the argument, what was found, what was expected, what to do.
namespace openvc::api {

/// Why a call cannot be honoured.
struct Refusal {
  ErrorCode code = ErrorCode::invalid_value;
  std::string message;
};

/// Empty if nothing is wrong.
using Verdict = std::optional<Refusal>;

/// Throws the refusal as openvc::Error.
void require(const Verdict& verdict);

/// A named argument; the name appears in messages.
struct NamedTensor {
  const char* name;
  const TensorView& tensor;
};

/// One tensor by itself: sizes, element type, pointer, strides.
Verdict validate_tensor(const NamedTensor& argument);

/// Q, K and V together. `any_head_dim` lifts the limit to kHeadDim channels.
Verdict validate_inputs(const TensorView& q, const TensorView& k, const TensorView& v,
                        bool any_head_dim = false);

Verdict validate_softmax_scale(std::optional<float> scale);
Verdict validate_mask(Mask mask);
Verdict validate_options(const AttentionOptions& options);
Verdict validate_execution(const Execution& execution);
/// Query rows that exact attention is asked for.
Verdict validate_rows(std::span<const std::int64_t> rows, std::int64_t queries);
Verdict validate_repair(double budget, const AttentionOptions& options);

/// The output of an attention with queries of shape `shape`.
Verdict validate_output(const MutableTensorView& out, const std::array<std::int64_t, 4>& shape,
                        ElementType type, Device device);

/// `out` and log_sum_exp (null, or `log_sum_exp_values` floats) overlap neither each other nor an
/// input, judged by the address ranges that they span.
Verdict validate_no_overlap(const MutableTensorView& out, const float* log_sum_exp,
                            std::int64_t log_sum_exp_values, std::span<const NamedTensor> inputs);

/// "[1, 2, 3, 4]".
std::string describe(std::span<const std::int64_t> values);
/// "cpu" or "cuda:1".
std::string describe(Device device);

}  // namespace openvc::api
