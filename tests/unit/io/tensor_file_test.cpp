// SPDX-License-Identifier: BSD-3-Clause
#include "io/tensor_file.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "io/safetensors.hpp"
#include "support/npy_writer.hpp"
#include "unit/io/content_invariants.hpp"
#include "unit/io/io_test_support.hpp"

namespace openvc::io {
namespace {

using testing::expect_refusal;
using testing::FileBytes;
using testing::Refusal;
using testing::refusal_of;
using testing::sample_files;
using testing::SampleFile;
using testing::TemporaryFolder;
using testing::to_bytes;

Refusal refusal_to_open(const std::filesystem::path& path) {
  return refusal_of([&] { (void)TensorFile::open(path); });
}

Refusal refusal_of_content(std::string_view content) {
  const TemporaryFolder folder;
  return refusal_to_open(folder.add("file.safetensors", to_bytes(content)));
}

TEST(TensorFile, OpensEverySampleWhateverItsExtension) {
  const TemporaryFolder folder;
  for (const SampleFile& sample : sample_files()) {
    SCOPED_TRACE(sample.name);
    const TensorFile file = TensorFile::open(folder.add("tensors.txt", sample.bytes));
    EXPECT_EQ(file.entries().empty(), sample.name == "empty_safetensors");
    const TensorFileContents contents = parse_tensor_file(sample.bytes, "tensors");
    EXPECT_EQ(testing::broken_invariant(contents, sample.bytes), "");
  }
}

TEST(TensorFile, ReadsWhatPythonWrote) {
  const FileBytes bytes = sample_files().front().bytes;
  const TensorFileContents contents = parse_tensor_file(bytes, "file");
  ASSERT_EQ(contents.entries.size(), 3u);
  EXPECT_EQ(contents.entries[0].name, "a");
  EXPECT_TRUE(contents.entries[0].shape.empty());
  EXPECT_EQ(contents.entries[1].name, "z");
  EXPECT_EQ(contents.entries[1].shape, (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(contents.entries[2].name, "b");
  EXPECT_EQ(contents.metadata, (Metadata{{"k", "v"}}));
}

TEST(TensorFile, DecodesNamesAndMetadata) {
  const auto samples = sample_files();
  const auto sample = std::ranges::find(samples, "escapes_safetensors", &SampleFile::name);
  const TensorFileContents contents = parse_tensor_file(sample->bytes, "file");
  EXPECT_EQ(contents.entries.at(0).name, "\xc3\xa9\xf0\x9f\x98\x80\n\"\\/\b\f\r\t");
  EXPECT_EQ(contents.metadata, (Metadata{{"", "\xc3\xa9"}, {"x", ""}}));
}

TEST(TensorFile, FindsTensorsByName) {
  const TemporaryFolder folder;
  const TensorFile file = TensorFile::open(folder.add("f", sample_files().front().bytes));
  ASSERT_NE(file.find("b"), nullptr);
  EXPECT_EQ(file.find("b")->type, StoredType::float16);
  EXPECT_EQ(&file.at("b"), file.find("b"));
  EXPECT_EQ(file.find("missing"), nullptr);
  expect_refusal(refusal_of([&] { (void)file.at("missing"); }), FileErrorReason::no_such_tensor,
                 {file.path().string(), "no tensor 'missing'", "one of 'a', 'z', 'b'"});
}

TEST(TensorFile, ListsOnlyTheFirstOfManyNames) {
  const TemporaryFolder folder;
  std::vector<TensorEntry> entries;
  for (int i = 100; i < 200; ++i) {
    entries.push_back(
        {.name = std::to_string(i), .type = StoredType::uint8, .shape = {0}, .bytes = {}});
  }
  write_safetensors(folder.path() / "many", entries);
  const TensorFile many = TensorFile::open(folder.path() / "many");
  expect_refusal(refusal_of([&] { (void)many.at("x"); }), FileErrorReason::no_such_tensor,
                 {"'111', ..."});
  write_safetensors(folder.path() / "none", {});
  const TensorFile none = TensorFile::open(folder.path() / "none");
  expect_refusal(refusal_of([&] { (void)none.at("x"); }), FileErrorReason::no_such_tensor,
                 {"the file holds none"});
}

TEST(TensorFile, EntriesSurviveAMove) {
  const TemporaryFolder folder;
  TensorFile source = TensorFile::open(folder.add("f", sample_files().front().bytes));
  const std::byte* address = source.at("b").bytes.data();
  const TensorFile moved = std::move(source);
  EXPECT_EQ(moved.at("b").bytes.data(), address);
  EXPECT_EQ(testing::elements_of<std::uint16_t>(moved.at("b")), (std::vector<std::uint16_t>{0, 0}));
}

TEST(TensorFile, PassesTheOptionsOn) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "bits.npy";
  testing::write_npy(path, {.name = "", .type = StoredType::uint16, .shape = {0}, .bytes = {}});
  EXPECT_EQ(TensorFile::open(path).at("bits").type, StoredType::uint16);
  const TensorFileOptions options{.npy = {.uint16_is_bfloat16 = true}};
  EXPECT_EQ(TensorFile::open(path, options).at("bits").type, StoredType::bfloat16);
}

TEST(TensorFile, TellsTheWayOutOfForeignFormats) {
  const auto expect_advice = [](std::string_view content,
                                std::initializer_list<std::string_view> parts) {
    SCOPED_TRACE(quote_for_message(content));
    expect_refusal(refusal_of_content(content), FileErrorReason::unsupported, parts);
  };
  expect_advice("PK\x03\x04rest", {"PyTorch .pt", "`open-vc-attn`", "weights_only"});
  expect_advice("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9", {"pickle", "`open-vc-attn`", "weights_only"});
  expect_advice("\x80\x04\x95rest", {"pickle", "weights_only"});
  expect_advice("version https://git-lfs.github.com/spec/v1\n", {"git lfs pull"});
  expect_advice("GGUF\x03", {"GGUF", "safetensors"});
  expect_advice("{\"weight_map\": {}}", {"JSON", "index"});
  expect_advice("", {"an empty file", "a safetensors or .npy file"});
  expect_advice("\x89HDF\r\n", {R"('\x89HDF\x0d\x0a')"});
  expect_advice("abc", {"an unknown format"});
}

TEST(TensorFile, TellsTheWayOutOfNumPyArchives) {
  const TemporaryFolder folder;
  expect_refusal(refusal_to_open(folder.add("x.npz", to_bytes("PK\x03\x04rest"))),
                 FileErrorReason::unsupported, {"NumPy .npz", "numpy.save"});
}

TEST(TensorFile, HeaderLengthsThatLookLikeOtherFormatsAreRead) {
  // 80 02 00 ..: a header of 640 bytes, and the begin of a pickle.
  const std::string header = "{}" + std::string(640 - 2, ' ');
  const FileBytes file = testing::safetensors_file(header);
  ASSERT_EQ(file[0], std::byte{0x80});
  EXPECT_TRUE(parse_tensor_file(file, "file").entries.empty());
}

TEST(TensorFile, TruncatedSafetensorsIsCalledDamaged) {
  const FileBytes file = sample_files().front().bytes;
  expect_refusal(refusal_of([&] { (void)parse_tensor_file(std::span(file).first(60), "file"); }),
                 FileErrorReason::malformed, {"header length of 192", "damaged or incomplete"});
}

TEST(TensorFile, PassesOnWhatTheSystemRefuses) {
  const TemporaryFolder folder;
  expect_refusal(refusal_to_open(folder.path() / "x"), FileErrorReason::cannot_open, {"No such"});
  expect_refusal(refusal_to_open(folder.path()), FileErrorReason::cannot_open, {"directory"});
}

TEST(TensorFile, TruncationAtEveryByteIsRefused) {
  for (const SampleFile& sample : sample_files()) {
    SCOPED_TRACE(sample.name);
    for (std::size_t length = 0; length < sample.bytes.size(); ++length) {
      const FileBytes part(sample.bytes.begin(),
                           sample.bytes.begin() + static_cast<std::ptrdiff_t>(length));
      EXPECT_THROW((void)parse_tensor_file(part, "file"), FileError) << length;
    }
  }
}

TEST(TensorFile, TruncationOnDiskIsRefused) {
  const TemporaryFolder folder;
  const FileBytes whole = sample_files().front().bytes;
  const auto path = folder.add("file", whole);
  for (std::size_t length = whole.size(); length-- > 0;) {
    std::filesystem::resize_file(path, length);
    EXPECT_THROW((void)TensorFile::open(path), FileError) << length;
  }
}

TEST(TensorFile, OneByteTooManyIsRefused) {
  for (const SampleFile& sample : sample_files()) {
    FileBytes extended = sample.bytes;
    extended.push_back(std::byte{0});
    EXPECT_THROW((void)parse_tensor_file(extended, "file"), FileError) << sample.name;
  }
}

}  // namespace
}  // namespace openvc::io
