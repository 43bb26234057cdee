// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "openvc/options.hpp"
#include "openvc/tensor_view.hpp"

// Parts of tensors: what one sequence has of them.
namespace openvc::api {

/// The keys of sequence `batch` that take part, ascending.
std::vector<std::int64_t> selected_keys(const KeySelection& selection, std::int64_t batch,
                                        std::int64_t keys);

/// Sequence `batch` of a tensor, as a batch of one.
TensorView sequence(const TensorView& tensor, std::int64_t batch);
MutableTensorView sequence(const MutableTensorView& tensor, std::int64_t batch);

/// `count` tokens from token `first` on of a batch of one.
TensorView tokens(const TensorView& tensor, std::int64_t first, std::int64_t count);
MutableTensorView tokens(const MutableTensorView& tensor, std::int64_t first, std::int64_t count);

/// Some tokens of a batch of one: in place if they are the first ones, else a copy.
class SelectedTokens {
 public:
  SelectedTokens(const TensorView& tensor, const std::vector<std::int64_t>& tokens);

  [[nodiscard]] const TensorView& view() const { return view_; }

 private:
  TensorView view_;
  std::vector<std::byte> copy_;
};

/// The output of a sequence without keys: zeros, and -infinity for `log_sum_exp_values` floats of
/// log_sum_exp unless that is null.
void write_no_keys(const MutableTensorView& out, float* log_sum_exp,
                   std::int64_t log_sum_exp_values);

}  // namespace openvc::api
