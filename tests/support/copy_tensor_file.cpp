// SPDX-License-Identifier: BSD-3-Clause
//
// Reads a tensor file and writes what it holds to another one, .npy if the name says so and else
// safetensors, so that tests can compare both directions with the Python packages of the formats.
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>

#include "io/safetensors.hpp"
#include "io/tensor_file.hpp"
#include "support/npy_writer.hpp"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: copy_tensor_file <from> <to>\n";
    return EXIT_FAILURE;
  }
  try {
    using namespace openvc::io;
    const TensorFile file = TensorFile::open(argv[1]);
    const std::filesystem::path to = argv[2];
    if (to.extension() == ".npy") {
      testing::write_npy(to, file.entries().front());
    } else {
      write_safetensors(to, file.entries(), file.metadata());
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
