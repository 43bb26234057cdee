// SPDX-License-Identifier: BSD-3-Clause
#include "golden/golden_file.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <string_view>

#include "numerics/contract.hpp"

namespace openvc::golden {
namespace {

std::string path() {
  return golden_path("contract_v" + std::to_string(numerics::kContractVersion) + ".txt");
}

bool updates() {
  const char* value = std::getenv("OPENVC_UPDATE_GOLDEN");
  return value != nullptr && std::string_view(value) == "1";
}

void write(const std::map<std::string, std::uint64_t>& hashes) {
  std::ofstream file(path());
  for (const auto& [name, hash] : hashes) {
    file << std::hex << std::setw(16) << std::setfill('0') << hash << "  " << name << '\n';
  }
  ASSERT_TRUE(file.flush()) << path();
}

}  // namespace

std::string golden_path(const std::string& name) {
  const char* elsewhere = std::getenv("OPENVC_GOLDEN_DIRECTORY");
  const std::string directory = elsewhere != nullptr
                                    ? std::string(elsewhere)
                                    : std::string(OPENVC_REPOSITORY_DIRECTORY) + "/tests/golden";
  return directory + "/" + name;
}

std::map<std::string, std::uint64_t> read_golden() {
  std::map<std::string, std::uint64_t> hashes;
  std::ifstream file(path());
  std::uint64_t hash = 0;
  std::string name;
  while (file >> std::hex >> hash >> name) hashes[name] = hash;
  return hashes;
}

void expect_golden(const std::string& name, std::uint64_t hash) {
  auto hashes = read_golden();
  if (updates()) {
    hashes[name] = hash;
    write(hashes);
    return;
  }
  const auto known = hashes.find(name);
  ASSERT_NE(known, hashes.end())
      << name << ": no hash in " << path()
      << "; run the tests with OPENVC_UPDATE_GOLDEN=1 if this version of the contract is new";
  EXPECT_EQ(known->second, hash)
      << name << ": contract version " << numerics::kContractVersion
      << " no longer gives the bytes that it gave. If that is wanted, raise Contract::version, say "
         "what changed in docs/numerics.md and CHANGELOG.md, and run the tests with "
         "OPENVC_UPDATE_GOLDEN=1";
}

}  // namespace openvc::golden
