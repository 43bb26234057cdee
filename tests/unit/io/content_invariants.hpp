// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/safetensors.hpp"
#include "io/tensor_file.hpp"
#include "unit/io/sample_files.hpp"

namespace openvc::io::testing {

inline bool lies_inside(std::span<const std::byte> part, std::span<const std::byte> whole) {
  const std::less_equal<const std::byte*> not_after;
  return part.empty() || (not_after(whole.data(), part.data()) &&
                          not_after(part.data() + part.size(), whole.data() + whole.size()));
}

inline bool same_tensor(const TensorEntry& a, const TensorEntry& b) {
  return a.name == b.name && a.type == b.type && a.shape == b.shape &&
         std::ranges::equal(a.bytes, b.bytes);
}

/// What must hold for everything that a reader accepts, however strange the file; names the first
/// rule that is broken, or is empty.
inline std::string broken_invariant(const TensorFileContents& contents,
                                    std::span<const std::byte> file) {
  std::string data;
  std::vector<TensorEntry> known;
  for (const TensorEntry& entry : contents.entries) {
    if (!lies_inside(entry.bytes, file)) return "the bytes of a tensor lie inside the file";
    if (entry.shape.size() > kMaxRank) return "the rank is limited";
    if (entry.type == StoredType::unknown) continue;
    known.push_back(entry);
    if (checked_byte_count(entry.shape, entry.type) != entry.bytes.size()) {
      return "a tensor is as long as its shape and type say";
    }
    data.append(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size());
  }
  if (data.size() > file.size()) return "tensors do not overlap";

  const std::filesystem::path path = "again.safetensors";
  const FileBytes again =
      to_bytes(encode_safetensors_header(known, contents.metadata, path) + data);
  const TensorFileContents reread = parse_safetensors(again, path);
  // A zero-size tensor shares its offset with its neighbours: compare by name, not by place.
  const bool same_tensors = reread.entries.size() == known.size() &&
                            std::ranges::all_of(known, [&](const TensorEntry& entry) {
                              const auto copy =
                                  std::ranges::find(reread.entries, entry.name, &TensorEntry::name);
                              return copy != reread.entries.end() && same_tensor(*copy, entry);
                            });
  if (!same_tensors) return "tensors survive writing and reading";
  if (reread.metadata != contents.metadata) return "metadata survives writing and reading";
  return {};
}

}  // namespace openvc::io::testing
