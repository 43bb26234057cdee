// SPDX-License-Identifier: BSD-3-Clause
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <string>
#include <vector>

#include "io/atomic_file_writer.hpp"
#include "io/safetensors.hpp"
#include "io/tensor_file.hpp"
#include "unit/io/content_invariants.hpp"
#include "unit/io/io_test_support.hpp"

namespace openvc::io {
namespace {

using testing::expect_refusal;
using testing::FileBytes;
using testing::read_text;
using testing::Refusal;
using testing::refusal_of;
using testing::TemporaryFolder;
using testing::to_bytes;

TensorEntry entry_of(std::string name, StoredType type, std::vector<std::int64_t> shape,
                     std::span<const std::byte> bytes) {
  return {.name = std::move(name), .type = type, .shape = std::move(shape), .bytes = bytes};
}

Refusal refusal_to_write(const std::filesystem::path& path, const TensorEntry& entry,
                         const Metadata& metadata = {}) {
  return refusal_of([&] { write_safetensors(path, std::span(&entry, 1), metadata); });
}

TEST(SafetensorsWriter, WritesTheDocumentedBytes) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "t.safetensors";
  const FileBytes data = to_bytes("\x01\x02\x03\x04");
  const TensorEntry entry = entry_of("a\"b", StoredType::bfloat16, {2, 1}, data);
  write_safetensors(path, std::span(&entry, 1), {{"k", "v\n"}});
  std::string expected("\x58\0\0\0\0\0\0\0", 8);
  expected += R"({"__metadata__":{"k":"v\n"},"a\"b":{"dtype":"BF16","shape":[2,1],)"
              R"("data_offsets":[0,4]}} )";
  expected += "\x01\x02\x03\x04";
  EXPECT_EQ(read_text(path), expected);
}

TEST(SafetensorsWriter, RefusesTypesThatAreNotKnown) {
  const TemporaryFolder folder;
  const FileBytes data(4);
  TensorEntry entry = entry_of("t", StoredType::unknown, {4}, data);
  entry.unknown_type = "F4";
  expect_refusal(refusal_to_write(folder.path() / "t.safetensors", entry),
                 FileErrorReason::unsupported, {"tensor 't' of 'F4' [4]", "a known element type"});
  EXPECT_EQ(folder.file_count(), 0u);
}

TEST(SafetensorsWriter, RoundTripKeepsEverything) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "t.safetensors";
  const FileBytes data = to_bytes("0123456789abcdefghijklmn");
  std::vector<TensorEntry> entries;
  for (const StoredTypeInfo& info : kStoredTypes) {
    if (info.type == StoredType::unknown) continue;
    entries.push_back(entry_of(std::string("type ") + std::string(info.name), info.type, {3},
                               std::span(data).first(3u * info.size)));
  }
  entries.push_back(entry_of("scalar", StoredType::float32, {}, std::span(data).first(4)));
  entries.push_back(entry_of("empty", StoredType::float16, {2, 0, 3}, {}));
  entries.push_back(entry_of("", StoredType::uint8, {1}, std::span(data).first(1)));
  entries.push_back(entry_of("\xc3\xa9\n", StoredType::uint8, {1}, std::span(data).last(1)));
  const Metadata metadata = {{"", ""}, {"key \"", "\\ \x1f \xf0\x9f\x98\x80"}};
  write_safetensors(path, entries, metadata);

  const TensorFile file = TensorFile::open(path);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.entries().size(), entries.size());
  for (const TensorEntry& entry : entries) {
    EXPECT_TRUE(testing::same_tensor(file.at(entry.name), entry)) << entry.name;
  }
}

TEST(SafetensorsWriter, AlignsEveryTensorAndTheData) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "t.safetensors";
  const FileBytes data(24);
  std::vector<TensorEntry> entries;
  for (const StoredTypeInfo& info : kStoredTypes) {
    if (info.type == StoredType::unknown) continue;
    entries.push_back(
        entry_of(std::string(info.name), info.type, {3}, std::span(data).first(3u * info.size)));
  }
  write_safetensors(path, entries);
  for (const TensorFile file = TensorFile::open(path); const TensorEntry& entry : file.entries()) {
    const auto address = reinterpret_cast<std::uintptr_t>(entry.bytes.data());
    EXPECT_EQ(address % stored_size(entry.type), 0u) << entry.name;
  }
}

TEST(SafetensorsWriter, BytesDoNotDependOnTheOrderOfTheArguments) {
  const TemporaryFolder folder;
  const FileBytes data = to_bytes("01234567");
  std::vector<TensorEntry> entries = {
      entry_of("b", StoredType::uint8, {1}, std::span(data).first(1)),
      entry_of("a", StoredType::uint8, {1}, std::span(data).last(1)),
      entry_of("c", StoredType::float64, {}, data)};
  write_safetensors(folder.path() / "1", entries);
  std::ranges::reverse(entries);
  write_safetensors(folder.path() / "2", entries);
  EXPECT_EQ(read_text(folder.path() / "1"), read_text(folder.path() / "2"));
  const TensorFile file = TensorFile::open(folder.path() / "1");
  EXPECT_EQ(file.entries()[0].name, "c");
  EXPECT_EQ(file.entries()[1].name, "a");
  EXPECT_EQ(file.entries()[2].name, "b");
}

TEST(SafetensorsWriter, RefusesWhatTheReaderWouldRefuse) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "t.safetensors";
  const FileBytes data(4);
  const auto expect_unsupported = [](const Refusal& refusal, std::string_view part) {
    expect_refusal(refusal, FileErrorReason::unsupported, {"t.safetensors", part});
  };
  expect_unsupported(refusal_to_write(path, entry_of("t", StoredType::float32, {2}, data)),
                     "tensor 't' of float32 [2] with 4 bytes; expected 8 bytes");
  expect_unsupported(refusal_to_write(path, entry_of("t", StoredType::uint8, {-4, -1}, data)),
                     "none negative");
  expect_unsupported(
      refusal_to_write(path, entry_of("t", StoredType::uint8, std::vector<std::int64_t>(65, 1),
                                      std::span(data).first(1))),
      "at most 64 dimensions");
  expect_unsupported(refusal_to_write(path, entry_of("\xff", StoredType::uint8, {4}, data)),
                     "valid UTF-8");
  expect_unsupported(refusal_to_write(path, entry_of("__metadata__", StoredType::uint8, {4}, data)),
                     "this one marks the metadata");
  const TensorEntry good = entry_of("t", StoredType::uint8, {4}, data);
  expect_unsupported(refusal_to_write(path, good, {{"\xff", ""}}), "metadata key");
  expect_unsupported(refusal_to_write(path, good, {{"k", "\xff"}}), "metadata value");
  expect_unsupported(refusal_to_write(path, good, {{"k", std::string(100'000'000, ' ')}}),
                     "Spread the tensors");
  expect_unsupported(refusal_of([&] {
                       write_safetensors(path, std::vector{good, good});
                     }),
                     "'t' twice");
  EXPECT_EQ(folder.file_count(), 0u) << "a refused write leaves files";
}

TEST(SafetensorsWriter, ReplacesAFileThatIsOpen) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "t.safetensors";
  const FileBytes old_data = to_bytes("old!");
  const TensorEntry entry = entry_of("t", StoredType::uint8, {4}, old_data);
  write_safetensors(path, std::span(&entry, 1));

  // The source of the new file is the mapping of the file that it replaces.
  const TensorFile file = TensorFile::open(path);
  write_safetensors(path, file.entries(), {{"k", "v"}});
  EXPECT_TRUE(std::ranges::equal(file.at("t").bytes, old_data));
  EXPECT_EQ(TensorFile::open(path).metadata().size(), 1u);
  EXPECT_EQ(folder.file_count(), 1u);
}

TEST(AtomicFileWriter, KeepsTheOldFileUntilCommit) {
  const TemporaryFolder folder;
  const auto path = folder.add("file", to_bytes("old"));
  {
    AtomicFileWriter abandoned(path);
    abandoned.write("new");
    EXPECT_EQ(read_text(path), "old");
  }
  EXPECT_EQ(read_text(path), "old");
  EXPECT_EQ(folder.file_count(), 1u);

  AtomicFileWriter writer(path);
  writer.write("new");
  writer.commit();
  EXPECT_EQ(read_text(path), "new");
  EXPECT_EQ(folder.file_count(), 1u);
}

TEST(AtomicFileWriter, ReplacesTheTargetOfALink) {
  const TemporaryFolder folder;
  const auto target = folder.add("target", to_bytes("old"));
  const auto link = folder.path() / "link";
  std::filesystem::create_symlink("target", link);
  AtomicFileWriter writer(link);
  writer.write("new");
  writer.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_text(target), "new");
}

TEST(AtomicFileWriter, NewFilesFollowTheUmask) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "file";
  const mode_t old_mask = ::umask(027);
  AtomicFileWriter writer(path);
  ::umask(old_mask);
  writer.commit();
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST(AtomicFileWriter, RefusesUnwritablePlaces) {
  const TemporaryFolder folder;
  const auto refusal_at = [](const std::filesystem::path& path) {
    return refusal_of([&] { AtomicFileWriter{path}; });
  };
  expect_refusal(refusal_at(folder.path() / "missing" / "file"), FileErrorReason::cannot_write,
                 {"No such file", "Check that the folder exists"});
  expect_refusal(refusal_at(folder.path()), FileErrorReason::cannot_write, {"a directory"});
  expect_refusal(refusal_at("/dev/null"), FileErrorReason::cannot_write, {"device"});
}

TEST(AtomicFileWriter, ReportsFailedWritesAndLeavesNothing) {
  const TemporaryFolder folder;
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 16, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Refusal refusal = refusal_of([&] {
    AtomicFileWriter writer(folder.path() / "file");
    writer.write(std::string(100, 'x'));
    writer.commit();
  });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);
  expect_refusal(refusal, FileErrorReason::cannot_write, {"write it", "File too large"});
  EXPECT_EQ(folder.file_count(), 0u);
}

}  // namespace
}  // namespace openvc::io
