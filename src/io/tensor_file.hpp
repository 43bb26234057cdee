// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "io/mapped_file.hpp"
#include "io/npy.hpp"
#include "io/tensor_entry.hpp"

namespace openvc::io {

struct TensorFileOptions {
  NpyOptions npy;
};

/// Reads the content of a tensor file; the format is told by the content. The entries point into
/// `file`; `path` is for messages and names the tensor of a .npy file.
[[nodiscard]] TensorFileContents parse_tensor_file(std::span<const std::byte> file,
                                                   const std::filesystem::path& path,
                                                   const TensorFileOptions& options = {});

/// A safetensors or .npy file, mapped into memory and checked as a whole before the first use.
///
/// The entries point into the mapping: they are valid as long as this object, or the one that it
/// was moved to, lives. See MappedFile for what happens when the file changes meanwhile.
class TensorFile {
 public:
  /// Throws FileError; the text names the path, what was found, what was expected and what to do.
  [[nodiscard]] static TensorFile open(const std::filesystem::path& path,
                                       const TensorFileOptions& options = {});

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// In the order of their data in the file.
  [[nodiscard]] std::span<const TensorEntry> entries() const noexcept { return contents_.entries; }

  /// Empty for .npy files, which cannot hold any.
  [[nodiscard]] const Metadata& metadata() const noexcept { return contents_.metadata; }

  /// The tensor of that name, or nullptr.
  [[nodiscard]] const TensorEntry* find(std::string_view name) const noexcept;

  /// The tensor of that name; throws FileError that lists the names there are.
  [[nodiscard]] const TensorEntry& at(std::string_view name) const;

 private:
  TensorFile(std::filesystem::path path, MappedFile file, const TensorFileOptions& options);

  std::filesystem::path path_;
  MappedFile file_;
  TensorFileContents contents_;
};

}  // namespace openvc::io
