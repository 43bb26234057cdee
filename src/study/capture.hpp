// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/tensor_entry.hpp"
#include "openvc/tensor_view.hpp"

namespace openvc::study {

/// Order of the dimensions of a stored tensor; a missing batch dimension counts as 1.
enum class StoredLayout : std::uint8_t {
  sequence_head,  ///< [S, H, D] or [B, S, H, D]
  head_sequence,  ///< [H, S, D] or [B, H, S, D]
};

struct CaptureRequest {
  /// One file that holds all three tensors, or several; three .npy files whatever their names, in
  /// the order q, k, v.
  std::vector<std::filesystem::path> files;
  std::string prefix{};  ///< before each of the names
  std::string q = "q";
  std::string k = "k";
  std::string v = "v";
  /// Empty: as the files say, else [B, S, H, D].
  std::optional<StoredLayout> layout{};
  bool uint16_is_bfloat16 = false;
};

/// One stored tensor as an attention input.
struct CapturedTensor {
  std::vector<std::byte> bytes;
  ElementType type = ElementType::bfloat16;
  std::array<std::int64_t, 4> shape{};    // [B, S, H, D]
  std::array<std::int64_t, 4> strides{};  // elements
  std::size_t rank = 4;                   // as stored

  [[nodiscard]] TensorView view() const noexcept {
    return {bytes.data(), type, Device{}, shape, strides};
  }
};

/// Q, K and V that somebody recorded.
struct Capture {
  CapturedTensor q;
  CapturedTensor k;
  CapturedTensor v;
  // What the files say about the call, see study/stored_call.hpp.
  std::optional<float> softmax_scale;
  std::optional<bool> causal;
  bool masked = false;  ///< the call had a mask that is not stored
  StoredLayout layout = StoredLayout::sequence_head;
  io::Metadata metadata;  ///< of all files
};

/// Throws io::FileError or Error; the text names the file, the tensor and what to do.
[[nodiscard]] Capture load_capture(const CaptureRequest& request);

}  // namespace openvc::study
