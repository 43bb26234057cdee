// SPDX-License-Identifier: BSD-3-Clause
#include "io/tensor_entry.hpp"

#include <algorithm>
#include <limits>

#include "io/file_error.hpp"

namespace openvc::io {

std::optional<std::uint64_t> checked_byte_count(std::span<const std::int64_t> shape,
                                                StoredType type) noexcept {
  constexpr std::int64_t kMaxBytes = std::numeric_limits<std::int64_t>::max();
  auto bytes = static_cast<std::int64_t>(stored_size(type));
  bool has_elements = true;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) {
      has_elements = false;
      continue;
    }
    if (bytes > kMaxBytes / extent) return std::nullopt;
    bytes *= extent;
  }
  return has_elements ? static_cast<std::uint64_t>(bytes) : 0;
}

void check_writable(const TensorEntry& entry, const std::filesystem::path& path) {
  const std::string owner = "tensor " + quote_for_message(entry.name) + " of " + type_text(entry) +
                            " " + shape_text(entry.shape);
  if (entry.type == StoredType::unknown) {
    throw FileError(FileErrorReason::unsupported, path,
                    {.found = owner,
                     .expected = "a known element type",
                     .advice = "Convert the tensor, or leave it out."});
  }
  const std::optional<std::uint64_t> bytes = checked_byte_count(entry.shape, entry.type);
  if (entry.shape.size() > kMaxRank || !bytes) {
    throw FileError(FileErrorReason::unsupported, path,
                    {.found = owner,
                     .expected = "at most " + std::to_string(kMaxRank) +
                                 " dimensions, none negative, and a size that fits 63 bits",
                     .advice = "Correct the shape."});
  }
  if (*bytes != entry.bytes.size()) {
    throw FileError(FileErrorReason::unsupported, path,
                    {.found = owner + " with " + std::to_string(entry.bytes.size()) + " bytes",
                     .expected = std::to_string(*bytes) + " bytes",
                     .advice = "Pass the bytes of the whole contiguous tensor."});
  }
}

std::string shape_text(std::span<const std::int64_t> shape) {
  constexpr std::size_t kMaxShownExtents = 8;
  std::string text = "[";
  for (std::size_t i = 0; i < std::min(shape.size(), kMaxShownExtents); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  if (shape.size() > kMaxShownExtents) text += ", ...";
  return text + "]";
}

std::string type_text(const TensorEntry& entry) {
  return entry.type == StoredType::unknown ? quote_for_message(entry.unknown_type)
                                           : std::string(stored_name(entry.type));
}

}  // namespace openvc::io
