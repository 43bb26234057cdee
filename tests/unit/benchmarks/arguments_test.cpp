// SPDX-License-Identifier: BSD-3-Clause
#include "benchmarks/arguments.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace openvc::benchmarks {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// One option of each kind.
struct Program {
  double seconds = 1.0;
  double repair = 0.0;
  int steps = 2;
  std::int64_t heads = 8;
  bool checks = true;
  std::vector<std::int64_t> tokens = {128};
  std::vector<std::size_t> variants;
  std::vector<Shape> shapes = {{1, 1}};

  std::string refusal(std::vector<const char*> words) {
    Arguments arguments("program");
    arguments.above_zero("--seconds", seconds);
    arguments.share("--repair", repair);
    arguments.one_of("--steps", {0, 1, 2, 4}, steps);
    arguments.count("--heads", heads);
    arguments.flag("--no-checks", checks, false);
    arguments.counts("--tokens", tokens);
    arguments.indices("--variants", 3, variants);
    arguments.shapes("--shapes", shapes);
    words.insert(words.begin(), "program");
    return arguments.refusal(static_cast<int>(words.size()), words.data());
  }
};

TEST(BenchmarkArguments, ReadsEveryKind) {
  Program program;
  EXPECT_EQ(program.refusal({}), "");
  EXPECT_EQ(program.refusal({"--seconds", "0.5", "--repair", "0.01", "--steps", "4", "--heads", "3",
                             "--no-checks", "--tokens", "5,6", "--variants", "2,0", "--shapes",
                             "4096x8,1x2"}),
            "");
  EXPECT_EQ(program.seconds, 0.5);
  EXPECT_EQ(program.repair, 0.01);
  EXPECT_EQ(program.steps, 4);
  EXPECT_EQ(program.heads, 3);
  EXPECT_FALSE(program.checks);
  EXPECT_THAT(program.tokens, ElementsAre(5, 6));
  EXPECT_THAT(program.variants, ElementsAre(2, 0));
  ASSERT_EQ(program.shapes.size(), 2u);
  EXPECT_EQ(program.shapes[0].tokens, 4096);
  EXPECT_EQ(program.shapes[1].heads, 2);
}

TEST(BenchmarkArguments, RefusesWhatIsNoOption) {
  for (const char* word : {"--second", "--Seconds", "-s", "--seconds=1", "1", "", "--checks"}) {
    EXPECT_THAT(Program().refusal({word}), HasSubstr("unknown option")) << word;
    EXPECT_THAT(Program().refusal({"--heads", "1", word, "2"}), HasSubstr("unknown option"));
  }
}

TEST(BenchmarkArguments, RefusesAMissingValue) {
  for (const char* name :
       {"--seconds", "--repair", "--steps", "--heads", "--tokens", "--variants", "--shapes"}) {
    EXPECT_THAT(Program().refusal({name}), HasSubstr("no value; expected <")) << name;
  }
}

TEST(BenchmarkArguments, RefusesValuesOfAnotherKind) {
  const std::vector<std::vector<const char*>> table = {
      {"--seconds", "0"},   {"--seconds", "-1"},    {"--seconds", "nan"},
      {"--seconds", "inf"}, {"--seconds", "1s"},    {"--seconds", ""},
      {"--seconds", " 1"},  {"--repair", "1"},      {"--repair", "-0.1"},
      {"--repair", "nan"},  {"--steps", "3"},       {"--steps", "2.0"},
      {"--heads", "0"},     {"--heads", "-3"},      {"--heads", "x"},
      {"--heads", "1,2"},   {"--tokens", "1,"},     {"--tokens", ",1"},
      {"--tokens", "1,,2"}, {"--tokens", "0"},      {"--tokens", "1 2"},
      {"--variants", "3"},  {"--variants", "-1"},   {"--variants", "1,3"},
      {"--shapes", "4096"}, {"--shapes", "4096x"},  {"--shapes", "x8"},
      {"--shapes", "0x8"},  {"--shapes", "4096X8"}, {"--shapes", "4x8x2"},
      {"--shapes", "4x8,"}, {"--shapes", "4x-8"},   {"--heads", "99999999999999999999"},
  };
  for (const auto& words : table) {
    EXPECT_THAT(Program().refusal(words), HasSubstr("; expected <")) << words[0] << ' ' << words[1];
  }
}

}  // namespace
}  // namespace openvc::benchmarks
