// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "io/atomic_file_writer.hpp"
#include "io/file_error.hpp"
#include "io/json_reader.hpp"
#include "io/little_endian.hpp"
#include "io/safetensors.hpp"
#include "io/utf8.hpp"

namespace openvc::io {
namespace {

constexpr std::size_t kDataAlignment = 8;

[[noreturn]] void refuse_text(const std::filesystem::path& path, const std::string& found,
                              std::string expected) {
  throw FileError(FileErrorReason::unsupported, path,
                  {.found = found,
                   .expected = std::move(expected),
                   .advice = "Rename it before writing the file."});
}

void check_text(const std::filesystem::path& path, std::string_view role, std::string_view text) {
  if (!is_valid_utf8(text)) {
    refuse_text(path, "the " + std::string(role) + " " + quote_for_message(text), "valid UTF-8");
  }
}

void check_names(std::span<const TensorEntry> entries, const std::filesystem::path& path) {
  std::vector<std::string_view> names;
  for (const TensorEntry& entry : entries) {
    check_text(path, "tensor name", entry.name);
    if (entry.name == kSafetensorsMetadataKey) {
      refuse_text(path, "the tensor name " + quote_for_message(entry.name),
                  "another name: this one marks the metadata");
    }
    names.push_back(entry.name);
  }
  std::ranges::sort(names);
  const auto repeated = std::ranges::adjacent_find(names);
  if (repeated != names.end()) {
    refuse_text(path, "the tensor name " + quote_for_message(*repeated) + " twice",
                "each name once");
  }
}

void append_metadata(std::string& json, const Metadata& metadata,
                     const std::filesystem::path& path) {
  json += '{';
  for (bool first = true; const auto& [key, value] : metadata) {
    check_text(path, "metadata key", key);
    check_text(path, "metadata value", value);
    if (!std::exchange(first, false)) json += ',';
    append_json_string(json, key);
    json += ':';
    append_json_string(json, value);
  }
  json += '}';
}

void append_tensor(std::string& json, const TensorEntry& entry, std::uint64_t begin) {
  append_json_string(json, entry.name);
  json += R"(:{"dtype":")";
  json += stored_type_info(entry.type).safetensors_name;
  json += R"(","shape":[)";
  for (bool first = true; const std::int64_t extent : entry.shape) {
    if (!std::exchange(first, false)) json += ',';
    json += std::to_string(extent);
  }
  json += R"(],"data_offsets":[)" + std::to_string(begin) + ',' +
          std::to_string(begin + entry.bytes.size()) + "]}";
}

}  // namespace

std::string encode_safetensors_header(std::span<const TensorEntry> entries,
                                      const Metadata& metadata, const std::filesystem::path& path) {
  check_names(entries, path);
  std::string json = "{";
  if (!metadata.empty()) {
    append_json_string(json, kSafetensorsMetadataKey);
    json += ':';
    append_metadata(json, metadata, path);
  }
  std::uint64_t begin = 0;
  for (const TensorEntry& entry : entries) {
    check_writable(entry, path);
    if (json.size() > 1) json += ',';
    append_tensor(json, entry, begin);
    begin += entry.bytes.size();
  }
  json += '}';
  const std::size_t misalignment = json.size() % kDataAlignment;
  if (misalignment != 0) json.append(kDataAlignment - misalignment, ' ');

  if (json.size() > kMaxSafetensorsHeaderBytes) {
    throw FileError(FileErrorReason::unsupported, path,
                    {.found = "a header of " + std::to_string(json.size()) + " bytes",
                     .expected = "at most " + std::to_string(kMaxSafetensorsHeaderBytes),
                     .advice = "Spread the tensors over several files or shorten the metadata."});
  }
  std::string header;
  append_little_endian(header, std::uint64_t{json.size()});
  return header + json;
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorEntry> entries,
                       const Metadata& metadata) {
  std::vector<TensorEntry> sorted(entries.begin(), entries.end());
  std::ranges::sort(sorted, [](const TensorEntry& a, const TensorEntry& b) {
    const std::size_t size_a = stored_size(a.type);
    const std::size_t size_b = stored_size(b.type);
    return size_a != size_b ? size_a > size_b : a.name < b.name;
  });
  const std::string header = encode_safetensors_header(sorted, metadata, path);
  AtomicFileWriter file(path);
  file.write(header);
  for (const TensorEntry& entry : sorted) file.write(entry.bytes);
  file.commit();
}

}  // namespace openvc::io
