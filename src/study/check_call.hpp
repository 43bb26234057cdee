// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "openvc/attention.hpp"
#include "study/tensors.hpp"

// Calls as a user makes them, for the self check: tensors in the memory of a device, outputs whose
// memory holds NaN before.
namespace openvc::study {

enum class CheckLayout : std::uint8_t {
  contiguous,
  fused_projection,  ///< q, k and v as slices of wider tensors, whose other slices are NaN
};

struct CheckCall {
  AttentionOptions options{};
  CheckLayout layout = CheckLayout::contiguous;
  double budget = 0.0;
  bool prepared = true;  ///< prepare_repair() and attention_prepared(), else attention()
  Device device{};
  int threads = 0;
};

struct CheckOutput {
  OwnedTensor out;
  std::vector<float> log_sum_exp;
};

[[nodiscard]] CheckOutput run_call(const Tensors& in, const CheckCall& call);

/// Exact output for all queries, [B, S, H, D]; `log_sum_exp` is null or takes B * H * S values.
[[nodiscard]] std::vector<double> exact_output(const Tensors& in, Mask mask, int threads,
                                               double* log_sum_exp = nullptr);

[[nodiscard]] std::vector<double> values_of(const OwnedTensor& tensor);

[[nodiscard]] double relative_error(const CheckOutput& output, std::span<const double> truth);

/// Share of output bytes that differ.
[[nodiscard]] double differing_share(const OwnedTensor& a, const OwnedTensor& b);

[[nodiscard]] std::size_t row_count(const Tensors& in);

}  // namespace openvc::study
