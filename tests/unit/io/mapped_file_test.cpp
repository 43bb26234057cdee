// SPDX-License-Identifier: BSD-3-Clause
#include "io/mapped_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "unit/io/io_test_support.hpp"

namespace openvc::io {
namespace {

using testing::expect_refusal;
using testing::refusal_of;
using testing::TemporaryFolder;
using testing::to_bytes;

static_assert(!std::is_copy_constructible_v<MappedFile>);
static_assert(std::is_nothrow_move_constructible_v<MappedFile>);

testing::Refusal refusal_to_map(const std::filesystem::path& path) {
  return refusal_of([&] { MappedFile{path}; });
}

TEST(MappedFile, ShowsTheContent) {
  const TemporaryFolder folder;
  const auto content = to_bytes("content");
  const MappedFile file(folder.add("file", content));
  EXPECT_TRUE(std::ranges::equal(file.bytes(), content));
}

TEST(MappedFile, EmptyFileIsEmpty) {
  const TemporaryFolder folder;
  EXPECT_TRUE(MappedFile(folder.add("empty", {})).bytes().empty());
}

TEST(MappedFile, MoveKeepsTheAddressAndEmptiesTheSource) {
  const TemporaryFolder folder;
  const auto content = to_bytes("first");
  MappedFile source(folder.add("first", content));
  const std::byte* address = source.bytes().data();

  MappedFile moved(std::move(source));
  EXPECT_EQ(moved.bytes().data(), address);
  EXPECT_TRUE(source.bytes().empty());  // NOLINT(bugprone-use-after-move): the point of the test

  MappedFile assigned(folder.add("second", to_bytes("second")));
  assigned = std::move(moved);
  EXPECT_TRUE(std::ranges::equal(assigned.bytes(), content));
  EXPECT_TRUE(moved.bytes().empty());  // NOLINT(bugprone-use-after-move)

  MappedFile& same = assigned;
  assigned = std::move(same);
  EXPECT_TRUE(std::ranges::equal(assigned.bytes(), content));
}

TEST(MappedFile, OutlivesTheRemovedFile) {
  const TemporaryFolder folder;
  const auto path = folder.add("file", to_bytes("content"));
  const MappedFile file(path);
  std::filesystem::remove(path);
  EXPECT_TRUE(std::ranges::equal(file.bytes(), to_bytes("content")));
}

TEST(MappedFile, RefusesAMissingFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "missing.npy";
  expect_refusal(refusal_to_map(path), FileErrorReason::cannot_open,
                 {path.string(), "No such file", "Check the path"});
}

TEST(MappedFile, RefusesADirectory) {
  const TemporaryFolder folder;
  expect_refusal(refusal_to_map(folder.path()), FileErrorReason::cannot_open, {"a directory"});
}

TEST(MappedFile, RefusesAPipeWithoutWaitingForItsWriter) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_refusal(refusal_to_map(path), FileErrorReason::cannot_open, {"pipe", "regular file"});
}

TEST(MappedFile, RefusesADevice) {
  expect_refusal(refusal_to_map("/dev/null"), FileErrorReason::cannot_open, {"device"});
}

TEST(MappedFile, RefusesAFileWithoutPermission) {
  const TemporaryFolder folder;
  const auto path = folder.add("secret", to_bytes("content"));
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  // Root reads everything: become another user for the one call.
  constexpr uid_t kUnprivilegedUser = 65534;
  const uid_t user = ::geteuid();
  if (user == 0 && ::seteuid(kUnprivilegedUser) != 0) GTEST_SKIP() << "cannot drop privileges";
  const testing::Refusal refusal = refusal_to_map(path);
  ASSERT_EQ(::seteuid(user), 0);
  expect_refusal(refusal, FileErrorReason::cannot_open, {"Permission denied"});
}

TEST(FileError, IsAnErrorOfTheLibrary) {
  try {
    MappedFile{"/nonexistent"};
    FAIL() << "opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_value);
  }
}

TEST(QuoteForMessage, EscapesWhatATerminalWouldInterpret) {
  EXPECT_EQ(quote_for_message("plain name.0"), "'plain name.0'");
  EXPECT_EQ(quote_for_message("\x1b[2J\n\xc3\xa9'\\"), R"('\x1b[2J\x0a\xc3\xa9\'\\')");
}

TEST(QuoteForMessage, ShortensLongText) {
  const std::string quoted = quote_for_message(std::string(1000, 'x'));
  EXPECT_LT(quoted.size(), 150u);
  EXPECT_NE(quoted.find("1000 bytes"), std::string::npos);
}

}  // namespace
}  // namespace openvc::io
