// SPDX-License-Identifier: BSD-3-Clause
#include "io/npy.hpp"

#include <string>
#include <vector>

#include "io/tensor_file.hpp"
#include "support/npy_writer.hpp"
#include "unit/io/io_test_support.hpp"

namespace openvc::io {
namespace {

using testing::expect_refusal;
using testing::FileBytes;
using testing::npy_file;
using testing::Refusal;
using testing::refusal_of;
using testing::TemporaryFolder;

const std::filesystem::path kPath = "folder/keys.npy";

TensorEntry parse(const FileBytes& file, const NpyOptions& options = {}) {
  return parse_npy(file, kPath, options).entries.at(0);
}

Refusal refusal_to_parse(const FileBytes& file) {
  return refusal_of([&] { (void)parse(file); });
}

std::string header(std::string_view descr, std::string_view shape,
                   std::string_view fortran_order = "False") {
  return "{'descr': " + std::string(descr) + ", 'fortran_order': " + std::string(fortran_order) +
         ", 'shape': " + std::string(shape) + ", }   \n";
}

std::string bytes_of(std::size_t count) { return std::string(count, '\x2a'); }

TEST(NpyReader, ReadsAnArray) {
  const FileBytes file = npy_file(header("'<u2'", "(3, 1)"), std::string_view("\1\0\2\0\3\1", 6));
  const TensorEntry entry = parse(file);
  EXPECT_EQ(entry.name, "keys");
  EXPECT_EQ(entry.type, StoredType::uint16);
  EXPECT_EQ(entry.shape, (std::vector<std::int64_t>{3, 1}));
  EXPECT_EQ(testing::elements_of<std::uint16_t>(entry), (std::vector<std::uint16_t>{1, 2, 259}));
}

TEST(NpyReader, ReadsEveryVersionAlike) {
  for (const int version : {1, 2, 3}) {
    const FileBytes file = npy_file(header("'<f4'", "(2,)"), bytes_of(8), version);
    EXPECT_EQ(testing::element_count(parse(file)), 2u) << version;
  }
}

TEST(NpyReader, ReadsScalarsAndZeroSizeArrays) {
  const FileBytes scalar = npy_file(header("'<f8'", "()"), bytes_of(8));
  EXPECT_TRUE(parse(scalar).shape.empty());
  EXPECT_EQ(testing::element_count(parse(scalar)), 1u);
  const FileBytes empty = npy_file(header("'<f8'", "(0, 5)"));
  EXPECT_EQ(testing::element_count(parse(empty)), 0u);
}

TEST(NpyReader, ReadsEveryElementTypeThatTheFormatNames) {
  for (const StoredTypeInfo& info : kStoredTypes) {
    if (info.npy_name.empty()) continue;
    const FileBytes file =
        npy_file(header("'" + std::string(info.npy_name) + "'", "(2,)"), bytes_of(2u * info.size));
    EXPECT_EQ(parse(file).type, info.type) << info.name;
  }
}

TEST(NpyReader, ReadsTwoByteVoidAsBfloat16) {
  EXPECT_EQ(parse(npy_file(header("'<V2'", "()"), bytes_of(2))).type, StoredType::bfloat16);
  EXPECT_EQ(parse(npy_file(header("'|V2'", "()"), bytes_of(2))).type, StoredType::bfloat16);
}

TEST(NpyReader, ReadsUint16AsBfloat16OnlyOnRequest) {
  const FileBytes file = npy_file(header("'<u2'", "()"), bytes_of(2));
  EXPECT_EQ(parse(file).type, StoredType::uint16);
  EXPECT_EQ(parse(file, {.uint16_is_bfloat16 = true}).type, StoredType::bfloat16);
  const FileBytes other = npy_file(header("'<i2'", "()"), bytes_of(2));
  EXPECT_EQ(parse(other, {.uint16_is_bfloat16 = true}).type, StoredType::int16);
}

TEST(NpyReader, AcceptsOtherSpellingsOfTheHeader) {
  for (const std::string_view text :
       {"{'shape':(2,),'fortran_order':False,'descr':'|u1'}",
        "{\"descr\":\"|u1\",\"fortran_order\":False,\"shape\":(2 , ) , }\n",
        " {'descr':'|u1','fortran_order':False,'shape':(1,2)}",
        "{'descr':'|u1','fortran_order':False,'shape':(2,1,),}"}) {
    EXPECT_EQ(testing::element_count(parse(npy_file(text, "ab"))), 2u) << text;
  }
}

TEST(NpyReader, RefusesMalformedHeaders) {
  for (const std::string_view text :
       {"",
        "{",
        "{}",
        "[]",
        "{'descr'}",
        "{'descr':}",
        "{descr:'|u1'}",
        "{'descr':'|u1','fortran_order':False}",
        "{'descr':'|u1','shape':(2,)}",
        "{'fortran_order':False,'shape':(2,)}",
        "{'descr':'|u1','descr':'|u1','fortran_order':False,'shape':(2,)}",
        "{'descr':'|u1','fortran_order':False,'shape':(2,),'extra':1}",
        "{'descr':'|u1','fortran_order':False,'shape':(2,)} x",
        "{'descr':'|u1','fortran_order':False,'shape':(2,)}}",
        "{'descr':'|u1','fortran_order':False 'shape':(2,)}",
        "{'descr':'|u1,'fortran_order':False,'shape':(2,)}",
        "{'descr':'\\x7cu1','fortran_order':False,'shape':(2,)}",
        "{'descr':None,'fortran_order':False,'shape':(2,)}",
        "{'descr':'|u1','fortran_order':0,'shape':(2,)}",
        "{'descr':'|u1','fortran_order':'False','shape':(2,)}",
        "{'descr':'|u1','fortran_order':False,'shape':2}",
        "{'descr':'|u1','fortran_order':False,'shape':(2)}",
        "{'descr':'|u1','fortran_order':False,'shape':[2]}",
        "{'descr':'|u1','fortran_order':False,'shape':(,)}",
        "{'descr':'|u1','fortran_order':False,'shape':(2,,)}",
        "{'descr':'|u1','fortran_order':False,'shape':(-2,)}",
        "{'descr':'|u1','fortran_order':False,'shape':(02,)}",
        "{'descr':'|u1','fortran_order':False,'shape':(2.0,)}",
        "{'descr':'|u1','fortran_order':False,'shape':(2L,)}",
        "{'descr':'|u1','fortran_order':False,'shape':(0x2,)}",
        "{'descr':'|u1','fortran_order':False,'shape':(1+1,)}",
        "{'descr':'|u1','fortran_order':False,'shape':(9223372036854775808,)}",
        "{'descr':'|u1','fortran_order':False,'shape':(2,"}) {
    SCOPED_TRACE(text);
    expect_refusal(refusal_to_parse(npy_file(text, "ab")), FileErrorReason::malformed,
                   {"folder/keys.npy: found ", "header", "; expected "});
  }
}

TEST(NpyReader, AcceptsTheLargestRankOnly) {
  const auto file_of_rank = [](std::size_t rank) {
    std::string shape = "(";
    for (std::size_t i = 0; i < rank; ++i) shape += "1,";
    return npy_file(header("'|u1'", shape + ")"), bytes_of(1));
  };
  EXPECT_EQ(parse(file_of_rank(kMaxRank)).shape.size(), kMaxRank);
  expect_refusal(refusal_to_parse(file_of_rank(kMaxRank + 1)), FileErrorReason::malformed,
                 {"at most 64 dimensions"});
}

TEST(NpyReader, RefusesSizesThatOverflow) {
  for (const std::string_view shape :
       {"(9223372036854775807,)", "(4294967296, 4294967296)", "(0, 9223372036854775807, 2)"}) {
    expect_refusal(refusal_to_parse(npy_file(header("'<f4'", shape))), FileErrorReason::malformed,
                   {"fits 63 bits"});
  }
}

TEST(NpyReader, RefusesDataOfAnotherLength) {
  expect_refusal(refusal_to_parse(npy_file(header("'<f4'", "(2,)"), bytes_of(7))),
                 FileErrorReason::malformed,
                 {"7 bytes after the header", "8 bytes", "float32 [2]"});
  expect_refusal(refusal_to_parse(npy_file(header("'<f4'", "(2,)"), bytes_of(9))),
                 FileErrorReason::malformed, {"9 bytes after the header", "one array"});
}

TEST(NpyReader, RefusesWrongVersionsAndLengths) {
  expect_refusal(refusal_to_parse(npy_file(header("'<f4'", "()"), bytes_of(4), 4)),
                 FileErrorReason::unsupported, {"version 4.0", "numpy.save"});
  expect_refusal(refusal_to_parse(npy_file(header("'<f4'", "()"), bytes_of(4), 0)),
                 FileErrorReason::unsupported, {"version 0.0"});
  FileBytes minor = npy_file(header("'<f4'", "()"), bytes_of(4));
  minor[7] = std::byte{1};
  expect_refusal(refusal_to_parse(minor), FileErrorReason::unsupported, {"version 1.1"});

  const FileBytes long_header = npy_file(header("'|u1'", "()") + std::string(65'535, ' '), "x", 2);
  expect_refusal(refusal_to_parse(long_header), FileErrorReason::malformed, {"at most 65535"});
  const std::string_view beyond("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14);
  expect_refusal(refusal_to_parse(testing::to_bytes(beyond)), FileErrorReason::malformed,
                 {"header length of 4294967295"});
  expect_refusal(refusal_to_parse(testing::to_bytes("NUMPY")), FileErrorReason::malformed,
                 {"no .npy magic"});
}

TEST(NpyReader, TellsTheWayOutOfUnsupportedArrays) {
  const auto expect_advice = [](std::string_view descr, std::string_view fortran_order,
                                std::initializer_list<std::string_view> parts) {
    const FileBytes file = npy_file(header(descr, "(2,)", fortran_order), bytes_of(8));
    expect_refusal(refusal_to_parse(file), FileErrorReason::unsupported, parts);
  };
  expect_advice("'>f4'", "False", {"big-endian", "'>f4'", "newbyteorder('<')"});
  expect_advice("'<f4'", "True", {"Fortran order", "numpy.ascontiguousarray"});
  expect_advice("[('a', '<f4')]", "False", {"structured array", "array['field']"});
  expect_advice("'|O'", "False", {"'|O'", "astype"});
  expect_advice("'<U2'", "False", {"'<U2'", "save an array of numbers"});
  expect_advice("'|S5'", "False", {"'|S5'", "save an array of numbers"});
  expect_advice("'<M8[s]'", "False", {"'<M8[s]'", "save an array of numbers"});
  expect_advice("'|V8'", "False", {"'|V8'", "save an array of numbers"});
  expect_advice("'|O'", "False", {"'|O'", "astype"});
  expect_advice("'<f16'", "False", {"'<f16'", "astype"});
  expect_advice("'<V1'", "False", {"'<V1'", "before it is saved"});
  expect_advice("''", "False", {"elements of type ''"});
}

TEST(NpyReader, WritesTheBytesThatNumPyWrites) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.npy";
  const FileBytes data = testing::to_bytes(std::string(8, '\0'));
  testing::write_npy(path,
                     {.name = "a", .type = StoredType::float32, .shape = {2, 1}, .bytes = data});
  const std::string dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }";
  EXPECT_EQ(testing::read_text(path), std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dictionary +
                                          std::string(128 - 10 - 1 - dictionary.size(), ' ') +
                                          '\n' + std::string(8, '\0'));
}

TEST(NpyReader, RoundTripKeepsEveryTypeAndShape) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.npy";
  const FileBytes data = testing::to_bytes("0123456789abcdefghijklmnopqrstuvwxyz0123456789ab");
  for (const StoredTypeInfo& info : kStoredTypes) {
    if (info.npy_name.empty()) continue;
    SCOPED_TRACE(info.name);
    for (const std::vector<std::int64_t>& shape :
         std::vector<std::vector<std::int64_t>>{{}, {0}, {6}, {3, 2}, {1, 3, 0}}) {
      const auto bytes = *checked_byte_count(shape, info.type);
      testing::write_npy(
          path,
          {.name = "a", .type = info.type, .shape = shape, .bytes = std::span(data).first(bytes)});
      const TensorFile file = TensorFile::open(path);
      EXPECT_EQ(file.at("a").type, info.type);
      EXPECT_EQ(file.at("a").shape, shape);
      EXPECT_TRUE(std::ranges::equal(file.at("a").bytes, std::span(data).first(bytes)));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.at("a").bytes.data()) % 64, 0u);
    }
  }
}

TEST(NpyReader, HoldsTheLargestShape) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.npy";
  std::vector<std::int64_t> shape(kMaxRank, 1);
  shape[0] = 0;
  shape[1] = INT64_MAX;
  testing::write_npy(path, {.name = "a", .type = StoredType::uint8, .shape = shape, .bytes = {}});
  EXPECT_EQ(TensorFile::open(path).at("a").shape, shape);
}

TEST(NpyReader, RefusesWhatTheFormatCannotSay) {
  const TemporaryFolder folder;
  const FileBytes data(4);
  const auto refusal_to_write = [&](StoredType type, std::vector<std::int64_t> shape) {
    return refusal_of([&] {
      testing::write_npy(folder.path() / "a.npy",
                         {.name = "a", .type = type, .shape = std::move(shape), .bytes = data});
    });
  };
  expect_refusal(refusal_to_write(StoredType::float8_e4m3, {4}), FileErrorReason::unsupported,
                 {"a.npy", "float8_e4m3", "safetensors"});
  expect_refusal(refusal_to_write(StoredType::float32, {2}), FileErrorReason::unsupported,
                 {"with 4 bytes; expected 8 bytes"});
  EXPECT_EQ(folder.file_count(), 0u);
}

}  // namespace
}  // namespace openvc::io
