// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>

namespace openvc::io {

/// The absolute path that `path` leads to through links and "..", whether a file is there or not.
[[nodiscard]] std::filesystem::path follow_links(const std::filesystem::path& path);

/// Whether two paths lead to one file, through links, hard links among them, or "..". Neither needs
/// to exist.
[[nodiscard]] bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b);

/// Whether `path` leads to the regular file that a descriptor of this process is open on.
[[nodiscard]] bool is_open_as(const std::filesystem::path& path, int descriptor);

}  // namespace openvc::io
