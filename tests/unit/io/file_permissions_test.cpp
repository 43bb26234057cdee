// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "io/atomic_file_writer.hpp"

namespace openvc::io {
namespace {

class FilePermissions : public testing::Test {
 protected:
  FilePermissions()
      : folder_(std::filesystem::temp_directory_path() /
                ("openvc-permissions-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~FilePermissions() override { std::filesystem::remove_all(folder_); }

  static mode_t mode_of(const std::filesystem::path& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0);
    return status.st_mode & 07777;
  }

  static void replace(const std::filesystem::path& path) {
    AtomicFileWriter writer(path);
    writer.write("new");
    writer.commit();
  }

  std::filesystem::path folder_;
};

TEST_F(FilePermissions, StayThoseOfTheFileThatIsReplaced) {
  for (const mode_t mode : {0600, 0640, 0644, 0400, 0666, 0755, 0}) {
    const std::filesystem::path path = folder_ / std::to_string(mode);
    std::ofstream(path) << "old";
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    replace(path);
    EXPECT_EQ(mode_of(path), mode);
    const std::filesystem::path link = folder_ / ("link-" + std::to_string(mode));
    std::filesystem::create_symlink(path, link);
    replace(link);
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_EQ(mode_of(path), mode);
  }
}

TEST_F(FilePermissions, OfANewFileFollowTheMask) {
  const mode_t before = ::umask(0);
  for (const mode_t mask : {0022, 0077, 0002, 0000}) {
    ::umask(mask);
    const std::filesystem::path path = folder_ / ("new-" + std::to_string(mask));
    replace(path);
    EXPECT_EQ(mode_of(path), 0666 & ~mask);
  }
  ::umask(before);
}

TEST_F(FilePermissions, NobodyElseReadsWhatReplacesAPrivateFile) {
  const std::filesystem::path path = folder_ / "private";
  std::ofstream(path) << "old";
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  AtomicFileWriter writer(path);
  writer.write("secret");
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_EQ(mode_of(entry.path()), 0600u) << entry.path();
  }
}

TEST_F(FilePermissions, TheOwnerStaysWhereTheSystemAllowsIt) {
  const std::filesystem::path path = folder_ / "owned";
  std::ofstream(path) << "old";
  if (::chown(path.c_str(), 12345, 12345) != 0) GTEST_SKIP() << "only root gives files away";
  replace(path);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 12345u);
  EXPECT_EQ(status.st_gid, 12345u);
}

}  // namespace
}  // namespace openvc::io
