// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "io/atomic_file_writer.hpp"
#include "io/file_error.hpp"
#include "io/little_endian.hpp"
#include "io/npy_format.hpp"
#include "io/tensor_entry.hpp"

// The program only reads .npy files; tests need some to read.
namespace openvc::io::testing {

/// The data starts at a multiple of this, as NumPy has it.
inline constexpr std::size_t kNpyDataAlignment = 64;

inline std::string npy_header(const TensorEntry& entry) {
  std::string dictionary = "{'descr': '";
  dictionary += stored_type_info(entry.type).npy_name;
  dictionary += "', 'fortran_order': False, 'shape': (";
  for (std::size_t i = 0; i < entry.shape.size(); ++i) {
    if (i > 0) dictionary += ", ";
    dictionary += std::to_string(entry.shape[i]);
  }
  if (entry.shape.size() == 1) dictionary += ',';  // without it "(3)" is a number in Python
  dictionary += "), }";

  constexpr std::size_t kPrefixBytes = kNpyLengthOffset + sizeof(std::uint16_t);
  const std::size_t unpadded = kPrefixBytes + dictionary.size() + 1;  // 1: the final newline
  const std::size_t padded =
      (unpadded + kNpyDataAlignment - 1) / kNpyDataAlignment * kNpyDataAlignment;
  dictionary.append(padded - unpadded, ' ');
  dictionary += '\n';

  std::string header(kNpyMagic);
  header += '\x01';  // format version 1.0
  header += '\x00';
  // kMaxRank dimensions of at most 19 digits stay far below the 65,535 bytes of version 1.
  append_little_endian(header, static_cast<std::uint16_t>(dictionary.size()));
  return header + dictionary;
}

/// Writes `entry` as a .npy file of version 1. 8-bit floats are refused, because the format cannot
/// name them.
inline void write_npy(const std::filesystem::path& path, const TensorEntry& entry) {
  check_writable(entry, path);
  if (stored_type_info(entry.type).npy_name.empty()) {
    throw FileError(FileErrorReason::unsupported, path,
                    {.found = std::string(stored_name(entry.type)) + " elements to write",
                     .expected = "a type that the .npy format can name",
                     .advice = "Write a safetensors file, or convert the elements to float32."});
  }
  AtomicFileWriter file(path);
  file.write(npy_header(entry));
  file.write(entry.bytes);
  file.commit();
}

}  // namespace openvc::io::testing
