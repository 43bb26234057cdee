// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <vector>

#include "io/tensor_file.hpp"
#include "study/capture.hpp"

namespace openvc::study {

/// What files say about the recorded call beside its tensors.
struct StoredCall {
  std::optional<float> softmax_scale;
  std::optional<bool> causal;
  std::optional<bool> masked;
  std::optional<StoredLayout> layout;
};

/// Whether a file says anything about it.
[[nodiscard]] bool says_something(const io::TensorFile& file, const CaptureRequest& request);

/// Collects it from metadata entries and from tensors of one element, by the names of the members
/// above, with `request.prefix` before them or without: what the prefix marks counts more.
///
/// Throws io::FileError for a value that cannot be read, for two that contradict each other, and
/// for a parameter of attention that goes by another name or that this library does not offer (a
/// mask, dropout, ..): computing another call in silence would be worse.
[[nodiscard]] StoredCall stored_call(const std::vector<io::TensorFile>& files,
                                     const CaptureRequest& request);

}  // namespace openvc::study
