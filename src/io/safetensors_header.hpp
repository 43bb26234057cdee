// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "io/tensor_entry.hpp"

namespace openvc::io {

/// Where the header says that a tensor lies, in bytes of the data part. Not checked yet.
struct DataRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct DeclaredTensor {
  TensorEntry entry;  // without bytes
  DataRange range;
};

struct SafetensorsHeader {
  std::vector<DeclaredTensor> tensors;
  Metadata metadata;
};

/// Reads the JSON text of a header strictly: its structure, UTF-8, keys that occur twice. What the
/// numbers say about the file is for the caller to check.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(std::string_view text,
                                                         const std::filesystem::path& path);

}  // namespace openvc::io
