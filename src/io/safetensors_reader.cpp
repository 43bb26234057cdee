// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "io/file_error.hpp"
#include "io/little_endian.hpp"
#include "io/safetensors.hpp"
#include "io/safetensors_header.hpp"

namespace openvc::io {
namespace {

std::string range_text(const DataRange& range) {
  return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
}

/// Checks one tensor by itself: its range is inside the data and as long as shape and type say.
void check_extent(const DeclaredTensor& tensor, std::size_t data_bytes,
                  const std::filesystem::path& path) {
  const auto& [entry, range] = tensor;
  const std::string owner = "tensor " + quote_for_message(entry.name);
  if (range.begin > range.end || std::cmp_greater(range.end, data_bytes)) {
    throw_malformed(path, owner + " at bytes " + range_text(range),
                    "a range inside the " + std::to_string(data_bytes) +
                        " bytes of data that follow the header");
  }
  const std::optional<std::uint64_t> bytes = checked_byte_count(entry.shape, entry.type);
  // How many bytes an element of an unknown type has, nobody can tell.
  if (entry.type == StoredType::unknown && bytes) return;
  const std::string form = std::string(stored_name(entry.type)) + " " + shape_text(entry.shape);
  if (!bytes) {
    throw_malformed(path, owner + " of " + form, "a shape whose size in bytes fits 63 bits");
  }
  if (std::cmp_not_equal(*bytes, range.end - range.begin)) {
    throw_malformed(path, owner + " at bytes " + range_text(range),
                    std::to_string(*bytes) + " bytes, as its type and shape say: " + form);
  }
}

/// Checks all tensors together, sorted by position: they cover the data without gap or overlap.
void check_coverage(std::span<const DeclaredTensor> tensors, std::size_t data_bytes,
                    const std::filesystem::path& path) {
  std::int64_t covered = 0;
  for (const auto& [entry, range] : tensors) {
    if (range.begin != covered) {
      throw_malformed(path,
                      "tensor " + quote_for_message(entry.name) + " at bytes " + range_text(range),
                      "its begin at byte " + std::to_string(covered) +
                          ", where the tensor before it ends: no overlap and no gap");
    }
    covered = range.end;
  }
  if (std::cmp_not_equal(covered, data_bytes)) {
    throw_malformed(path, std::to_string(data_bytes) + " bytes of data",
                    std::to_string(covered) + " bytes, the end of the last tensor");
  }
}

void check_unique_names(std::span<const DeclaredTensor> tensors,
                        const std::filesystem::path& path) {
  // Sorting, not hashing: a hostile file cannot make it quadratic.
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const DeclaredTensor& tensor : tensors) names.push_back(tensor.entry.name);
  std::ranges::sort(names);
  const auto repeated = std::ranges::adjacent_find(names);
  if (repeated != names.end()) {
    throw_malformed(path, "the tensor " + quote_for_message(*repeated) + " twice",
                    "each name once");
  }
}

std::string_view header_text(std::span<const std::byte> file, const std::filesystem::path& path) {
  if (file.size() < kSafetensorsLengthBytes) {
    throw_malformed(path, std::to_string(file.size()) + " bytes",
                    "at least the 8 bytes of the header length");
  }
  const auto length = load_little_endian<std::uint64_t>(file);
  const std::size_t available = file.size() - kSafetensorsLengthBytes;
  if (length > kMaxSafetensorsHeaderBytes || length > available) {
    throw_malformed(path, "a header length of " + std::to_string(length) + " bytes",
                    "at most " + std::to_string(kMaxSafetensorsHeaderBytes) + " and at most the " +
                        std::to_string(available) + " bytes that follow the length");
  }
  const auto bytes = file.subspan(kSafetensorsLengthBytes, static_cast<std::size_t>(length));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with('{')) {
    throw_malformed(path, "a header that starts with " + quote_for_message(text.substr(0, 1)),
                    "'{'");
  }
  return text;
}

}  // namespace

bool looks_like_safetensors(std::span<const std::byte> file) noexcept {
  // No header is as long as this; the first eight bytes of the other formats give larger numbers.
  constexpr std::uint64_t kImplausibleLength = std::uint64_t{1} << 40;
  return file.size() > kSafetensorsLengthBytes && file[kSafetensorsLengthBytes] == std::byte{'{'} &&
         load_little_endian<std::uint64_t>(file) < kImplausibleLength;
}

TensorFileContents parse_safetensors(std::span<const std::byte> file,
                                     const std::filesystem::path& path) {
  const std::string_view text = header_text(file, path);
  const auto data = file.subspan(kSafetensorsLengthBytes + text.size());
  SafetensorsHeader header = parse_safetensors_header(text, path);

  for (const DeclaredTensor& tensor : header.tensors) check_extent(tensor, data.size(), path);
  std::ranges::sort(header.tensors, [](const DeclaredTensor& a, const DeclaredTensor& b) {
    return std::tie(a.range.begin, a.range.end, a.entry.name) <
           std::tie(b.range.begin, b.range.end, b.entry.name);
  });
  check_coverage(header.tensors, data.size(), path);
  check_unique_names(header.tensors, path);

  TensorFileContents contents{.entries = {}, .metadata = std::move(header.metadata)};
  contents.entries.reserve(header.tensors.size());
  for (auto& [entry, range] : header.tensors) {
    entry.bytes = data.subspan(static_cast<std::size_t>(range.begin),
                               static_cast<std::size_t>(range.end - range.begin));
    contents.entries.push_back(std::move(entry));
  }
  return contents;
}

}  // namespace openvc::io
