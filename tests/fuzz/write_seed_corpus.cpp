// SPDX-License-Identifier: BSD-3-Clause
//
// Writes the valid sample files of the unit tests into a folder, as the seed corpus of the fuzzer.
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>

#include "io/atomic_file_writer.hpp"
#include "unit/io/sample_files.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: write_seed_corpus <folder>\n";
    return EXIT_FAILURE;
  }
  try {
    const std::filesystem::path folder = argv[1];
    std::filesystem::create_directories(folder);
    for (const auto& sample : openvc::io::testing::sample_files()) {
      openvc::io::AtomicFileWriter file(folder / sample.name);
      file.write(sample.bytes);
      file.commit();
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
