// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/atomic_file_writer.hpp"
#include "io/file_error.hpp"
#include "io/little_endian.hpp"
#include "io/safetensors.hpp"

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

/// `text` as a JSON string with its quotes.
std::string json_string(const std::filesystem::path& path, std::string_view role,
                        std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    refuse_text(path, "the " + std::string(role) + " " + quote_for_message(text), "valid UTF-8");
  }
}

void check_names(std::span<const TensorEntry> entries, const std::filesystem::path& path) {
  std::vector<std::string_view> names;
  for (const TensorEntry& entry : entries) {
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
    if (!std::exchange(first, false)) json += ',';
    json += json_string(path, "metadata key", key);
    json += ':';
    json += json_string(path, "metadata value", value);
  }
  json += '}';
}

void append_tensor(std::string& json, const TensorEntry& entry, std::uint64_t begin,
                   const std::filesystem::path& path) {
  json += json_string(path, "tensor name", entry.name);
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
    json += json_string(path, "metadata key", kSafetensorsMetadataKey);
    json += ':';
    append_metadata(json, metadata, path);
  }
  std::uint64_t begin = 0;
  for (const TensorEntry& entry : entries) {
    check_writable(entry, path);
    if (json.size() > 1) json += ',';
    append_tensor(json, entry, begin, path);
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
