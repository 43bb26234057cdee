// SPDX-License-Identifier: BSD-3-Clause
#include "api/selected_keys.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

namespace openvc::api {
namespace {

std::ptrdiff_t byte_offset(const TensorView& tensor, std::int64_t b, std::int64_t s,
                           std::int64_t h) {
  return tensor.offset(b, s, h) * static_cast<std::ptrdiff_t>(element_size(tensor.type));
}

std::size_t row_bytes(const TensorView& tensor) {
  return static_cast<std::size_t>(tensor.shape[kChannel]) * element_size(tensor.type);
}

/// A batch of one that starts so many bytes behind a tensor.
template <class View>
View batch_of_one(View tensor, std::ptrdiff_t bytes, std::int64_t count) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(tensor.data)>>,
                                  const std::byte, std::byte>;
  tensor.data = static_cast<Byte*>(tensor.data) + bytes;
  tensor.shape[kBatch] = 1;
  tensor.shape[kSequence] = count;
  return tensor;
}

bool are_first(const std::vector<std::int64_t>& tokens) {
  return tokens.empty() || tokens.back() + 1 == static_cast<std::int64_t>(tokens.size());
}

}  // namespace

std::vector<std::int64_t> selected_keys(const KeySelection& selection, std::int64_t batch,
                                        std::int64_t keys) {
  const std::int64_t length = selection.lengths == nullptr
                                  ? keys
                                  : std::clamp<std::int64_t>(selection.lengths[batch], 0, keys);
  std::vector<std::int64_t> selected;
  for (std::int64_t key = 0; key < length; ++key) {
    if (selection.mask == nullptr ||
        selection.mask[batch * selection.mask_batch_stride + key * selection.mask_key_stride] !=
            0) {
      selected.push_back(key);
    }
  }
  return selected;
}

TensorView sequence(const TensorView& tensor, std::int64_t batch) {
  return batch_of_one(tensor, byte_offset(tensor, batch, 0, 0), tensor.shape[kSequence]);
}

MutableTensorView sequence(const MutableTensorView& tensor, std::int64_t batch) {
  return batch_of_one(tensor, byte_offset(tensor.view(), batch, 0, 0), tensor.shape[kSequence]);
}

TensorView tokens(const TensorView& tensor, std::int64_t first, std::int64_t count) {
  return batch_of_one(tensor, byte_offset(tensor, 0, first, 0), count);
}

MutableTensorView tokens(const MutableTensorView& tensor, std::int64_t first, std::int64_t count) {
  return batch_of_one(tensor, byte_offset(tensor.view(), 0, first, 0), count);
}

SelectedTokens::SelectedTokens(const TensorView& tensor, const std::vector<std::int64_t>& tokens)
    : view_(tensor) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  view_.shape[kSequence] = count;
  if (are_first(tokens)) return;
  view_.strides = contiguous_strides(view_.shape);
  const std::size_t bytes = row_bytes(tensor);
  copy_.resize(static_cast<std::size_t>(count * tensor.shape[kHead]) * bytes);
  std::byte* target = copy_.data();
  const auto* source = static_cast<const std::byte*>(tensor.data);
  for (const std::int64_t token : tokens) {
    for (std::int64_t h = 0; h < tensor.shape[kHead]; ++h, target += bytes) {
      std::memcpy(target, source + byte_offset(tensor, 0, token, h), bytes);
    }
  }
  view_.data = copy_.data();
}

void write_no_keys(const MutableTensorView& out, float* log_sum_exp,
                   std::int64_t log_sum_exp_values) {
  const TensorView view = out.view();
  auto* data = static_cast<std::byte*>(out.data);
  for (std::int64_t s = 0; s < out.shape[kSequence]; ++s) {
    for (std::int64_t h = 0; h < out.shape[kHead]; ++h) {
      // Zero has the bits 0 in every element type.
      std::memset(data + byte_offset(view, 0, s, h), 0, row_bytes(view));
    }
  }
  if (log_sum_exp == nullptr) return;
  std::fill_n(log_sum_exp, log_sum_exp_values, -std::numeric_limits<float>::infinity());
}

}  // namespace openvc::api
