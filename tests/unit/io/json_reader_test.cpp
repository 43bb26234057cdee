// SPDX-License-Identifier: BSD-3-Clause
#include "io/json_reader.hpp"

#include <string>
#include <vector>

#include "io/utf8.hpp"
#include "unit/io/io_test_support.hpp"

namespace openvc::io {
namespace {

using testing::expect_refusal;
using testing::Refusal;
using testing::refusal_of;

const std::filesystem::path kPath = "file.safetensors";

std::string string_in(std::string_view json) {
  JsonReader reader(json, kPath);
  std::string value = reader.read_string();
  reader.expect_end();
  return value;
}

std::int64_t integer_in(std::string_view json) {
  JsonReader reader(json, kPath);
  const std::int64_t value = reader.read_non_negative_integer();
  reader.expect_end();
  return value;
}

std::vector<std::int64_t> array_in(std::string_view json) {
  JsonReader reader(json, kPath);
  std::vector<std::int64_t> values;
  reader.read_array([&] { values.push_back(reader.read_non_negative_integer()); });
  reader.expect_end();
  return values;
}

void expect_malformed(const Refusal& refusal) {
  expect_refusal(refusal, FileErrorReason::malformed, {"file.safetensors", "byte", "header"});
}

TEST(JsonReader, ReadsStrings) {
  EXPECT_EQ(string_in(R"("")"), "");
  EXPECT_EQ(string_in(" \t\r\n\"a b\" "), "a b");
  EXPECT_EQ(string_in(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(string_in(R"("\u0041\u00e9\u20AC\ud83d\ude00")"),
            "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(string_in(R"("\u0000")"), std::string(1, '\0'));
}

TEST(JsonReader, RefusesMalformedStrings) {
  for (const std::string_view json :
       {R"()", R"(a)", R"(')", R"("open)", R"("\)", R"("\")", R"("\x")", R"("\u12")", R"("\u12g4")",
        R"("\u+123")", R"("\ud83d")", R"("\ud83d\n")", R"("\ud83d\u0041")", R"("\ud83d\ud83d")",
        R"("\ude00")", "\"\n\"", "\"\x1f\"", R"("a" b)"}) {
    SCOPED_TRACE(json);
    expect_malformed(refusal_of([&] { (void)string_in(json); }));
  }
}

TEST(JsonReader, ReadsIntegers) {
  EXPECT_EQ(integer_in("0"), 0);
  EXPECT_EQ(integer_in(" 10080 "), 10080);
  EXPECT_EQ(integer_in("9223372036854775807"), INT64_MAX);
}

TEST(JsonReader, RefusesOtherNumbers) {
  for (const std::string_view json : {"",
                                      "-1",
                                      "-0",
                                      "+1",
                                      "01",
                                      "00",
                                      "1.0",
                                      "1e3",
                                      "1E3",
                                      "1.",
                                      ".5",
                                      "9223372036854775808",
                                      "18446744073709551616",
                                      "99999999999999999999999",
                                      "1x",
                                      "NaN",
                                      "null",
                                      "true",
                                      "\"1\"",
                                      "[1]",
                                      "0x10"}) {
    SCOPED_TRACE(json);
    expect_malformed(refusal_of([&] { (void)integer_in(json); }));
  }
}

TEST(JsonReader, ReadsArrays) {
  EXPECT_EQ(array_in("[]"), std::vector<std::int64_t>{});
  EXPECT_EQ(array_in(" [ 1 , 2,3 ] "), (std::vector<std::int64_t>{1, 2, 3}));
}

TEST(JsonReader, RefusesMalformedArrays) {
  for (const std::string_view json :
       {"", "[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1}", "[[1]]", "[]]", "{}"}) {
    SCOPED_TRACE(json);
    expect_malformed(refusal_of([&] { (void)array_in(json); }));
  }
}

TEST(JsonReader, RefusesMalformedObjects) {
  for (const std::string_view json : {"", "{", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,}", "{,}",
                                      "{a:1}", "{\"a\" 1}", "{\"a\":1]", "{1:1}", "[]"}) {
    SCOPED_TRACE(json);
    expect_malformed(refusal_of([&] {
      JsonReader reader(json, kPath);
      reader.read_object([&](const std::string&) { (void)reader.read_non_negative_integer(); });
    }));
  }
}

TEST(JsonReader, DeepNestingCostsNoStack) {
  const std::string nested(1'000'000, '[');
  expect_malformed(refusal_of([&] { (void)array_in(nested); }));
}

TEST(AppendJsonString, IsReadBackUnchanged) {
  for (const std::string& text :
       {std::string("plain"), std::string("\"\\/\b\f\n\r\t"), std::string("\0\x1f\x7f", 3),
        std::string("\xc3\xa9\xf0\x9f\x98\x80")}) {
    std::string json;
    append_json_string(json, text);
    EXPECT_EQ(string_in(json), text) << json;
  }
}

TEST(Utf8, AcceptsWellFormedText) {
  for (const std::string_view text :
       {"", "ascii", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_valid_utf8(text)) << quote_for_message(text);
  }
}

TEST(Utf8, FindsTheFirstMalformedByte) {
  for (const std::string_view text :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\x41", "\xe0\x9f\xbf", "\xe0\xa0",
        "\xe0\xa0\x41", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf0\x90\x80", "\xf0\x90\x80\x41",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_EQ(find_invalid_utf8("ok" + std::string(text)), 2u) << quote_for_message(text);
  }
}

TEST(Utf8, DoesNotLookBehindTheEnd) {
  // What follows the end would complete the sequence.
  EXPECT_EQ(find_invalid_utf8(std::string_view("a\xc2\x80").substr(0, 2)), 1u);
  EXPECT_EQ(find_invalid_utf8(std::string_view("a\xe0\xa0\x80").substr(0, 3)), 1u);
  EXPECT_EQ(find_invalid_utf8(std::string_view("a\xf0\x90\x80\x80").substr(0, 4)), 1u);
}

TEST(Utf8, AppendedCodePointsAreWellFormed) {
  for (const std::uint32_t code_point :
       {0x0u, 0x7fu, 0x80u, 0x7ffu, 0x800u, 0xd7ffu, 0xe000u, 0xffffu, 0x10000u, 0x10ffffu}) {
    std::string text;
    append_utf8(text, code_point);
    EXPECT_TRUE(is_valid_utf8(text)) << code_point;
  }
}

}  // namespace
}  // namespace openvc::io
