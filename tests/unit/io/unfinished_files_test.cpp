// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "io/atomic_file_writer.hpp"

namespace openvc::io {
namespace {

class UnfinishedFiles : public testing::Test {
 protected:
  UnfinishedFiles()
      : folder_(std::filesystem::temp_directory_path() /
                ("openvc-unfinished-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~UnfinishedFiles() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      all.push_back(entry.path().filename().string());
    }
    return all;
  }

  std::filesystem::path folder_;
};

TEST_F(UnfinishedFiles, GoWhereASignalEndsTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGTERM, [](int) {
      remove_unfinished_files();
      _exit(3);
    });
    AtomicFileWriter kept(folder_ / "kept");
    kept.write("whole");
    kept.commit();
    std::vector<std::unique_ptr<AtomicFileWriter>> writers;
    for (int i = 0; i < 10; ++i) {
      writers.push_back(std::make_unique<AtomicFileWriter>(folder_ / std::to_string(i)));
      writers.back()->write("part");
    }
    writers.erase(writers.begin() + 3);
    writers.push_back(std::make_unique<AtomicFileWriter>(folder_ / "last"));
    std::raise(SIGTERM);
    _exit(4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_EQ(names(), std::vector<std::string>{"kept"});
}

TEST_F(UnfinishedFiles, AreForgottenWithTheirWriters) {
  for (int i = 0; i < 200; ++i) {
    AtomicFileWriter writer(folder_ / "file");
    if (i % 2 == 0) writer.commit();
  }
  // Nobody's path is used any more, and every place is free again.
  AtomicFileWriter writer(folder_ / "other");
  EXPECT_EQ(names().size(), 2);
  remove_unfinished_files();
  EXPECT_EQ(names(), std::vector<std::string>{"file"});
}

}  // namespace
}  // namespace openvc::io
