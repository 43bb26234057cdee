// SPDX-License-Identifier: BSD-3-Clause
#include <string>
#include <vector>

#include "io/mapped_file.hpp"
#include "io/safetensors.hpp"
#include "unit/io/io_test_support.hpp"

namespace openvc::io {
namespace {

using testing::expect_refusal;
using testing::FileBytes;
using testing::Refusal;
using testing::refusal_of;
using testing::safetensors_file;

const std::filesystem::path kPath = "file.safetensors";

TensorFileContents parse(const FileBytes& file) { return parse_safetensors(file, kPath); }

Refusal refusal_to_parse(const FileBytes& file) {
  return refusal_of([&] { (void)parse(file); });
}

void expect_malformed(const FileBytes& file, std::initializer_list<std::string_view> parts) {
  const Refusal refusal = refusal_to_parse(file);
  expect_refusal(refusal, FileErrorReason::malformed, parts);
  expect_refusal(refusal, FileErrorReason::malformed, {"file.safetensors: found ", "; expected "});
}

std::string tensor(std::string_view name, std::string_view dtype, std::string_view shape,
                   std::string_view offsets) {
  return '"' + std::string(name) + R"(":{"dtype":")" + std::string(dtype) + R"(","shape":)" +
         std::string(shape) + R"(,"data_offsets":)" + std::string(offsets) + '}';
}

std::string bytes_of(std::size_t count) { return std::string(count, '\x2a'); }

TEST(SafetensorsReader, ReadsEntriesInTheOrderOfTheirData) {
  const FileBytes file = safetensors_file("{" + tensor("second", "U8", "[3]", "[4,7]") + "," +
                                              tensor("first", "F32", "[1,1]", "[0,4]") +
                                              R"(,"__metadata__":{"model":"m","note":""}})",
                                          "\x01\x02\x03\x04\x05\x06\x07");
  const TensorFileContents contents = parse(file);
  ASSERT_EQ(contents.entries.size(), 2u);
  EXPECT_EQ(contents.entries[0].name, "first");
  EXPECT_EQ(contents.entries[0].type, StoredType::float32);
  EXPECT_EQ(contents.entries[0].shape, (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(contents.entries[0].bytes.size(), 4u);
  EXPECT_EQ(contents.entries[1].name, "second");
  EXPECT_EQ(testing::elements_of<std::uint8_t>(contents.entries[1]),
            (std::vector<std::uint8_t>{5, 6, 7}));
  EXPECT_EQ(contents.metadata, (Metadata{{"model", "m"}, {"note", ""}}));
}

TEST(SafetensorsReader, ReadsEveryElementType) {
  for (const StoredTypeInfo& info : kStoredTypes) {
    if (info.type == StoredType::unknown) continue;
    SCOPED_TRACE(info.name);
    const FileBytes file = safetensors_file(
        "{" +
            tensor("t", info.safetensors_name, "[3]", "[0," + std::to_string(3 * info.size) + "]") +
            "}",
        bytes_of(3u * info.size));
    const TensorFileContents contents = parse(file);
    ASSERT_EQ(contents.entries.size(), 1u);
    EXPECT_EQ(contents.entries[0].type, info.type);
    EXPECT_EQ(testing::element_count(contents.entries[0]), 3u);
  }
}

TEST(SafetensorsReader, ReadsScalarsAndZeroSizeTensors) {
  const FileBytes file = safetensors_file("{" + tensor("s", "F16", "[]", "[0,2]") + "," +
                                              tensor("z", "F32", "[4,0,2]", "[2,2]") + "," +
                                              tensor("a", "F32", "[0]", "[0,0]") + "}",
                                          bytes_of(2));
  const TensorFileContents contents = parse(file);
  ASSERT_EQ(contents.entries.size(), 3u);
  EXPECT_EQ(contents.entries[0].name, "a");
  EXPECT_EQ(testing::element_count(contents.entries[1]), 1u);
  EXPECT_EQ(testing::element_count(contents.entries[2]), 0u);
}

TEST(SafetensorsReader, AcceptsAFileWithoutTensors) {
  EXPECT_TRUE(parse(safetensors_file("{}")).entries.empty());
  EXPECT_TRUE(parse(safetensors_file("{}      \n")).entries.empty());
  EXPECT_TRUE(parse(safetensors_file(R"({"__metadata__":{}})")).metadata.empty());
}

TEST(SafetensorsReader, AcceptsTheLargestRankOnly) {
  const auto ones = [](std::size_t rank) {
    std::string shape = "[";
    for (std::size_t i = 0; i < rank; ++i) shape += i == 0 ? "1" : ",1";
    return shape + "]";
  };
  const auto file_of_rank = [&](std::size_t rank) {
    return safetensors_file("{" + tensor("t", "U8", ones(rank), "[0,1]") + "}", bytes_of(1));
  };
  EXPECT_EQ(parse(file_of_rank(kMaxRank)).entries[0].shape.size(), kMaxRank);
  expect_malformed(file_of_rank(kMaxRank + 1), {"more than 64 dimensions", "tensor 't'"});
}

TEST(SafetensorsReader, RefusesHeaderLengthsBeyondTheFile) {
  for (const std::uint64_t length :
       {std::uint64_t{3}, std::uint64_t{100'000'000}, std::uint64_t{100'000'001},
        std::uint64_t{1} << 32, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    std::string file;
    append_little_endian(file, length);
    file += "{}";
    expect_malformed(testing::to_bytes(file), {"header length of " + std::to_string(length)});
  }
  expect_malformed(testing::to_bytes("1234567"), {"7 bytes"});
  expect_malformed({}, {"0 bytes"});
}

TEST(SafetensorsReader, RefusesAHeaderAboveTheLimitEvenInALargeFile) {
  const testing::TemporaryFolder folder;
  const auto refusal_of_length = [&](std::uint64_t length) {
    std::string begin;
    append_little_endian(begin, length);
    const auto path = folder.add("large", testing::to_bytes(begin + "{}"));
    std::filesystem::resize_file(path, kSafetensorsLengthBytes + length);  // sparse, all zero
    return refusal_of([&] { (void)parse_safetensors(MappedFile(path).bytes(), path); });
  };
  expect_refusal(refusal_of_length(kMaxSafetensorsHeaderBytes), FileErrorReason::malformed,
                 {"at byte 2 of the header"});
  expect_refusal(refusal_of_length(kMaxSafetensorsHeaderBytes + 1), FileErrorReason::malformed,
                 {"header length of 100000001"});
}

TEST(SafetensorsReader, RefusesHeadersThatAreNoObject) {
  for (const std::string_view header : {"", " {}", "[]", "\"a\"", "null"}) {
    expect_malformed(safetensors_file(header), {"a header that starts with"});
  }
}

TEST(SafetensorsReader, RefusesTrailingGarbage) {
  expect_malformed(safetensors_file("{}x"), {"'x' at byte 2 of the header"});
  expect_malformed(safetensors_file("{}{}"), {"nothing after the outermost value"});
  expect_malformed(safetensors_file(std::string_view("{}\0", 3)), {R"('\x00' at byte 2)"});
}

TEST(SafetensorsReader, RefusesNamesThatAreNotUtf8) {
  expect_malformed(safetensors_file("{" + tensor("a\xff", "U8", "[1]", "[0,1]") + "}", bytes_of(1)),
                   {R"(found '\xff)", "at byte 3 of the header", "expected valid UTF-8"});
}

TEST(SafetensorsReader, RefusesRepeatedKeys) {
  const std::string one = tensor("t", "U8", "[1]", "[0,1]");
  expect_malformed(
      safetensors_file("{" + one + "," + tensor("t", "U8", "[1]", "[1,2]") + "}", bytes_of(2)),
      {"'t' twice"});
  // The same name, spelled with an escape.
  expect_malformed(safetensors_file("{" + one + "," + tensor("\\u0074", "U8", "[0]", "[1,1]") + "}",
                                    bytes_of(1)),
                   {"'t' twice"});
  expect_malformed(safetensors_file(R"({"__metadata__":{},"__metadata__":{}})"),
                   {"'__metadata__' twice"});
  expect_malformed(safetensors_file(R"({"__metadata__":{"k":"1","k":"2"}})"),
                   {"'k' twice in the metadata"});
  for (const std::string_view repeated :
       {R"("dtype":"U8")", R"("shape":[1])", R"("data_offsets":[0,1])"}) {
    const std::string header =
        R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],)" + std::string(repeated) + "}}";
    expect_malformed(safetensors_file(header, bytes_of(1)), {"twice in tensor 't'"});
  }
}

TEST(SafetensorsReader, RefusesMissingAndUnknownKeys) {
  expect_malformed(safetensors_file(R"({"t":{"shape":[0],"data_offsets":[0,0]}})"),
                   {"tensor 't' without 'dtype'"});
  expect_malformed(safetensors_file(R"({"t":{"dtype":"U8","data_offsets":[0,0]}})"),
                   {"tensor 't' without 'shape'"});
  expect_malformed(safetensors_file(R"({"t":{"dtype":"U8","shape":[0]}})"),
                   {"tensor 't' without 'data_offsets'"});
  expect_malformed(
      safetensors_file(R"({"t":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"stride":1}})"),
      {"the key 'stride' in tensor 't'"});
}

TEST(SafetensorsReader, RefusesValuesOfAnotherKind) {
  for (const std::string_view header :
       {R"({"t":1})", R"({"t":[]})", R"({"t":null})", R"({"t":{"dtype":8}})",
        R"({"t":{"shape":"[1]"}})", R"({"t":{"shape":{}}})", R"({"t":{"shape":[[1]]}})",
        R"({"t":{"data_offsets":{}}})", R"({"__metadata__":[]})", R"({"__metadata__":{"k":1}})",
        R"({"__metadata__":{"k":null}})", R"({"__metadata__":{"k":{}}})"}) {
    SCOPED_TRACE(header);
    expect_malformed(safetensors_file(header), {"of the header"});
  }
}

TEST(SafetensorsReader, KeepsTensorsOfUnknownTypes) {
  for (const std::string_view dtype : {"F4", "F6_E2M3", "F8_E4M3FNUZ", "C128", "f32", "", "F32 "}) {
    SCOPED_TRACE(dtype);
    const TensorFileContents contents = parse(safetensors_file(
        "{" + tensor("t", dtype, "[9]", "[0,5]") + "," + tensor("u", "U8", "[2]", "[5,7]") + "}",
        bytes_of(7)));
    ASSERT_EQ(contents.entries.size(), 2u);
    EXPECT_EQ(contents.entries[0].type, StoredType::unknown);
    EXPECT_EQ(contents.entries[0].unknown_type, dtype);
    EXPECT_EQ(type_text(contents.entries[0]), quote_for_message(dtype));
    EXPECT_EQ(contents.entries[0].bytes.size(), 5u);
    EXPECT_EQ(contents.entries[1].bytes.size(), 2u);
  }
}

TEST(SafetensorsReader, ChecksTheRangesOfUnknownTypes) {
  const auto file = [](std::string_view shape, std::string_view offsets) {
    return safetensors_file("{" + tensor("t", "F4", shape, offsets) + "}", bytes_of(4));
  };
  expect_malformed(file("[8]", "[0,5]"), {"a range inside the 4 bytes of data"});
  expect_malformed(file("[8]", "[1,4]"), {"begin at byte 0"});
  expect_malformed(file("[8]", "[0,3]"), {"4 bytes of data"});
  expect_malformed(file("[4294967296,4294967296]", "[0,4]"), {"fits 63 bits"});
}

TEST(SafetensorsReader, RefusesExtentsThatAreNoSizes) {
  for (const std::string_view shape : {"[-1]", "[1.0]", "[1e0]", "[01]", "[9223372036854775808]",
                                       "[99999999999999999999]", "[null]", "[\"1\"]", "[true]"}) {
    SCOPED_TRACE(shape);
    expect_malformed(safetensors_file("{" + tensor("t", "U8", shape, "[0,1]") + "}", bytes_of(1)),
                     {"at byte"});
  }
}

TEST(SafetensorsReader, RefusesShapesWhoseSizeOverflows) {
  for (const std::string_view shape :
       {"[9223372036854775807]", "[4294967296,4294967296]", "[4611686018427387904,2]",
        "[0,9223372036854775807,9223372036854775807]", "[4294967296,2147483648]"}) {
    SCOPED_TRACE(shape);
    // 2^64 elements of any size would wrap to 0 bytes, which the empty range then matches.
    expect_malformed(safetensors_file("{" + tensor("t", "F32", shape, "[0,0]") + "}"),
                     {"a shape whose size in bytes fits 63 bits"});
  }
}

TEST(SafetensorsReader, RefusesRangesOutsideTheData) {
  for (const std::string_view offsets :
       {"[0,5]", "[4,8]", "[5,5]", "[3,1]", "[0,9223372036854775807]",
        "[9223372036854775803,9223372036854775807]"}) {
    SCOPED_TRACE(offsets);
    expect_malformed(safetensors_file("{" + tensor("t", "F32", "[1]", offsets) + "}", bytes_of(4)),
                     {"tensor 't' at bytes", "a range inside the 4 bytes of data"});
  }
}

TEST(SafetensorsReader, RefusesOffsetsThatAreNoPair) {
  for (const std::string_view offsets : {"[]", "[0]", "[0,1,2]"}) {
    expect_malformed(safetensors_file("{" + tensor("t", "U8", "[1]", offsets) + "}", bytes_of(1)),
                     {"data_offsets in tensor 't'", "two: begin and end"});
  }
  for (const std::string_view offsets : {"[-1,0]", "[0,18446744073709551616]", "[0,1.5]"}) {
    expect_malformed(safetensors_file("{" + tensor("t", "U8", "[1]", offsets) + "}", bytes_of(1)),
                     {"an integer from 0 to 2^63 - 1"});
  }
}

TEST(SafetensorsReader, RefusesSizesThatContradictTheShape) {
  expect_malformed(safetensors_file("{" + tensor("t", "F32", "[2]", "[0,4]") + "}", bytes_of(4)),
                   {"tensor 't' at bytes [0, 4)", "8 bytes", "float32 [2]"});
  expect_malformed(safetensors_file("{" + tensor("t", "F32", "[]", "[0,0]") + "}"),
                   {"4 bytes, as its type and shape say"});
  expect_malformed(safetensors_file("{" + tensor("t", "F32", "[0]", "[0,4]") + "}", bytes_of(4)),
                   {"0 bytes, as its type and shape say"});
}

TEST(SafetensorsReader, RefusesOverlapsAndGaps) {
  expect_malformed(safetensors_file("{" + tensor("a", "U8", "[3]", "[0,3]") + "," +
                                        tensor("b", "U8", "[3]", "[2,5]") + "}",
                                    bytes_of(5)),
                   {"tensor 'b' at bytes [2, 5)", "begin at byte 3", "no overlap"});
  expect_malformed(safetensors_file("{" + tensor("a", "U8", "[2]", "[0,2]") + "," +
                                        tensor("b", "U8", "[2]", "[0,2]") + "}",
                                    bytes_of(2)),
                   {"tensor 'b'", "begin at byte 2"});
  expect_malformed(safetensors_file("{" + tensor("a", "U8", "[1]", "[0,1]") + "," +
                                        tensor("b", "U8", "[1]", "[2,3]") + "}",
                                    bytes_of(3)),
                   {"tensor 'b'", "begin at byte 1", "no gap"});
  expect_malformed(safetensors_file("{" + tensor("a", "U8", "[1]", "[1,2]") + "}", bytes_of(2)),
                   {"tensor 'a'", "begin at byte 0"});
  // A zero-size tensor inside another one.
  expect_malformed(safetensors_file("{" + tensor("a", "U8", "[4]", "[0,4]") + "," +
                                        tensor("z", "U8", "[0]", "[2,2]") + "}",
                                    bytes_of(4)),
                   {"tensor 'z'", "begin at byte 4"});
}

TEST(SafetensorsReader, RefusesBytesAfterTheLastTensor) {
  expect_malformed(safetensors_file("{" + tensor("t", "U8", "[1]", "[0,1]") + "}", bytes_of(2)),
                   {"2 bytes of data", "1 bytes, the end of the last tensor"});
  expect_malformed(safetensors_file("{}", bytes_of(1)), {"1 bytes of data"});
}

TEST(SafetensorsReader, KeepsHostileNamesOutOfTheMessage) {
  const Refusal refusal =
      refusal_to_parse(safetensors_file("{" + tensor("\\u001b[2J", "U8", "[1]", "[0,0]") + "}"));
  EXPECT_EQ(refusal.text.find('\x1b'), std::string::npos);
  expect_refusal(refusal, FileErrorReason::malformed, {R"('\x1b[2J')"});
}

TEST(SafetensorsReader, ReadsEveryFormOfStrings) {
  const auto value = [](std::string_view json) {
    return parse(safetensors_file(R"({"__metadata__":{"k": )" + std::string(json) + "}}"))
        .metadata.at("k");
  };
  EXPECT_EQ(value(R"("")"), "");
  EXPECT_EQ(value("\t\r\n\"a b\" "), "a b");
  EXPECT_EQ(value(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(value(R"("\u0041\u00e9\u20AC\ud83d\ude00")"), "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(value(R"("\u0000")"), std::string(1, '\0'));
  EXPECT_EQ(value("\"\xf4\x8f\xbf\xbf\""), "\xf4\x8f\xbf\xbf");
}

TEST(SafetensorsReader, RefusesMalformedStrings) {
  for (const std::string_view json : {R"()",
                                      R"(a)",
                                      R"(')",
                                      R"("open)",
                                      R"("\)",
                                      R"("\")",
                                      R"("\x")",
                                      R"("\u12")",
                                      R"("\u12g4")",
                                      R"("\u+123")",
                                      R"("\ud83d")",
                                      R"("\ud83d\n")",
                                      R"("\ud83d\u0041")",
                                      R"("\ud83d\ud83d")",
                                      R"("\ude00")",
                                      "\"\n\"",
                                      "\"\x1f\"",
                                      R"("a" b)",
                                      "\"\xc0\x80\"",
                                      "\"\xed\xa0\x80\"",
                                      "\"\xf4\x90\x80\x80\"",
                                      "\"\xe0\xa0\"",
                                      "\"\xff\""}) {
    SCOPED_TRACE(json);
    expect_malformed(safetensors_file(R"({"__metadata__":{"k":)" + std::string(json) + "}}"),
                     {"at byte"});
  }
}

TEST(SafetensorsReader, RefusesMalformedJson) {
  for (const std::string_view header :
       {"{", "{\"a\"", "{\"a\":", "{\"a\":{", "{\"a\":{}", "{,}", "{a:1}", "{\"a\" {}}",
        "{\"a\":{}]", "{1:1}", "{/**/}", "{\"__metadata__\":{\"k\":\"v\",}}",
        "{\"a\":{\"shape\":[1,]}}", "{\"a\":{\"shape\":[1 2]}}", "{\"a\":{\"shape\":[1}}",
        "{\"a\":{\"shape\":[+1]}}", "{\"a\":{\"shape\":[.5]}}", "{\"a\":{\"shape\":[0x10]}}",
        "{\"a\":{\"shape\":[NaN]}}"}) {
    SCOPED_TRACE(header);
    expect_refusal(refusal_to_parse(safetensors_file(header)), FileErrorReason::malformed,
                   {"file.safetensors: found ", "; expected "});
  }
}

TEST(SafetensorsReader, DeepNestingCostsNoStack) {
  for (const std::string_view bracket : {"[", "{\"a\":"}) {
    std::string header = R"({"t":{"shape":)";
    for (int i = 0; i < 1'000'000; ++i) header += bracket;
    expect_malformed(safetensors_file(header), {"at byte"});
  }
}

TEST(SafetensorsReader, ReadsManyTensors) {
  constexpr int kTensors = 20'000;
  std::string header = "{";
  for (int i = 0; i < kTensors; ++i) {
    if (i > 0) header += ',';
    header += tensor("t" + std::to_string(i), "U8", "[0]", "[0,0]");
  }
  EXPECT_EQ(parse(safetensors_file(header + "}")).entries.size(), std::size_t{kTensors});
}

}  // namespace
}  // namespace openvc::io
