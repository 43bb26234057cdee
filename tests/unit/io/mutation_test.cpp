// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "io/file_error.hpp"
#include "io/tensor_file.hpp"
#include "unit/io/content_invariants.hpp"
#include "unit/io/sample_files.hpp"

namespace openvc::io {
namespace {

using testing::FileBytes;
using testing::sample_files;
using testing::SampleFile;
using testing::to_bytes;

/// Damages files in the ways that find parser bugs. The sequence depends on the seed only.
class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : generator_(seed) {}

  std::string mutate(std::string file, const std::vector<SampleFile>& samples) {
    const std::size_t old_size = file.size();
    const std::size_t steps = 1 + below(2);
    for (std::size_t i = 0; i < steps; ++i) apply_one(file, samples);
    // Without this most insertions would end at the check of the header length.
    if (below(4) != 0) repair_header_length(file, old_size);
    return file;
  }

  /// From 0 to limit - 1. std::uniform_int_distribution may differ between standard libraries.
  std::size_t below(std::size_t limit) { return generator_() % limit; }

 private:
  void apply_one(std::string& file, const std::vector<SampleFile>& samples) {
    if (file.empty()) file = "{";
    const std::size_t position = below(file.size());
    const std::size_t length = 1 + below(std::min<std::size_t>(16, file.size() - position));
    switch (below(8)) {
      case 0:
        file[position] = static_cast<char>(file[position] ^ (1 << below(8)));
        break;
      case 1:
        file[position] = pick(kInterestingBytes);
        break;
      case 2:
        file.erase(position, length);
        break;
      case 3:
        file.insert(position, file.substr(position, length));
        break;
      case 4:
        file.resize(position);
        break;
      case 5:
        replace_number(file, position);
        break;
      case 6:
        file.insert(position, kTokens[below(std::size(kTokens))]);
        break;
      default: {
        const FileBytes& other = samples[below(samples.size())].bytes;
        const std::size_t from = below(other.size());
        file.insert(position, reinterpret_cast<const char*>(other.data()) + from,
                    1 + below(other.size() - from));
      }
    }
  }

  /// Replaces the first decimal number at or after `position`.
  void replace_number(std::string& file, std::size_t position) {
    const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
    const auto begin =
        std::find_if(file.begin() + static_cast<std::ptrdiff_t>(position), file.end(), is_digit);
    const auto end = std::find_if_not(begin, file.end(), is_digit);
    file.replace(begin, end, kNumbers[below(std::size(kNumbers))]);
  }

  static void repair_header_length(std::string& file, std::size_t old_size) {
    if (file.size() < sizeof(std::uint64_t) || file.starts_with("\x93NUMPY")) return;
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof(length));
    length += file.size() - old_size;
    std::memcpy(file.data(), &length, sizeof(length));
  }

  char pick(std::string_view characters) { return characters[below(characters.size())]; }

  static constexpr std::string_view kInterestingBytes{"\0\x01\x7f\x80\xff{}[](),:'\"\\ \n0-9", 22};
  static constexpr const char* kNumbers[] = {"0",
                                             "1",
                                             "2",
                                             "8",
                                             "-1",
                                             "4294967296",
                                             "2147483648",
                                             "9223372036854775807",
                                             "9223372036854775808",
                                             "18446744073709551615",
                                             "99999999999999999999999",
                                             "1e9"};
  static constexpr const char* kTokens[] = {"\"shape\":",
                                            "\"dtype\":",
                                            "\"data_offsets\":",
                                            "\"__metadata__\":{",
                                            "[0,0]",
                                            "\\u0000",
                                            "\\ud800",
                                            "F8_E4M3",
                                            "'descr':",
                                            "True",
                                            "{}",
                                            ",",
                                            "0,"};

  std::mt19937 generator_;
};

TEST(TensorFileMutation, DamagedFilesAreRefusedOrReadConsistently) {
  constexpr std::uint32_t kSeed = 20240229;
  constexpr int kMutations = 20'000;
  const auto samples = sample_files();
  Mutator mutator(kSeed);
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < kMutations; ++i) {
    const FileBytes& original = samples[mutator.below(samples.size())].bytes;
    const std::string text(reinterpret_cast<const char*>(original.data()), original.size());
    const FileBytes file = to_bytes(mutator.mutate(text, samples));
    try {
      const TensorFileContents contents = parse_tensor_file(file, "mutated.npy");
      ASSERT_EQ(testing::broken_invariant(contents, file), "") << "mutation " << i;
      ++accepted;
    } catch (const FileError&) {
      ++refused;
    }
  }
  RecordProperty("accepted", accepted);
  // A test that only ever sees one outcome would not be looking at the parsers.
  EXPECT_GT(accepted, kMutations / 100);
  EXPECT_GT(refused, kMutations / 2);
}

}  // namespace
}  // namespace openvc::io
