// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <ostream>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/file_error.hpp"
#include "io/tensor_entry.hpp"
#include "unit/io/sample_files.hpp"

namespace openvc::io::testing {

/// A new empty folder that is removed with its content.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "openvc-io-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Writes a file into the folder and returns its path.
  std::filesystem::path add(const std::string& name, std::span<const std::byte> content) const {
    const std::filesystem::path file = path_ / name;
    std::ofstream stream(file, std::ios::binary);
    stream.write(reinterpret_cast<const char*>(content.data()),
                 static_cast<std::streamsize>(content.size()));
    return file;
  }

  [[nodiscard]] std::size_t file_count() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(path_)) ++count;
    return count;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

inline std::size_t element_count(const TensorEntry& entry) {
  return entry.bytes.size() / stored_size(entry.type);
}

/// The elements of `entry`, which may be unaligned.
template <class Element>
std::vector<Element> elements_of(const TensorEntry& entry) {
  std::vector<Element> elements(entry.bytes.size() / sizeof(Element));
  std::memcpy(elements.data(), entry.bytes.data(), entry.bytes.size());
  return elements;
}

/// What a call was refused with; shows as the message in test output.
struct Refusal {
  std::optional<FileErrorReason> reason;
  std::string text = "not refused";
};

inline std::ostream& operator<<(std::ostream& stream, const Refusal& refusal) {
  return stream << refusal.text;
}

template <class Call>
Refusal refusal_of(Call&& call) {
  try {
    call();
  } catch (const FileError& error) {
    return {error.reason(), error.what()};
  }
  return {};
}

/// Expects a refusal for `reason` whose message holds all `parts`.
inline void expect_refusal(const Refusal& refusal, FileErrorReason reason,
                           std::initializer_list<std::string_view> parts) {
  EXPECT_EQ(refusal.reason, reason) << refusal;
  for (const std::string_view part : parts) {
    EXPECT_NE(refusal.text.find(part), std::string::npos)
        << "message: " << refusal << "\nlacks: " << part;
  }
}

}  // namespace openvc::io::testing
