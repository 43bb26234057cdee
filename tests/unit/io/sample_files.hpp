// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/little_endian.hpp"

namespace openvc::io::testing {

/// Exactly as long as its content, so that AddressSanitizer sees every read behind the end.
using FileBytes = std::vector<std::byte>;

inline FileBytes to_bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

/// A safetensors file with this header, whether it is right or wrong, and this data.
inline FileBytes safetensors_file(std::string_view header, std::string_view data = {}) {
  std::string file;
  append_little_endian(file, std::uint64_t{header.size()});
  file += header;
  file += data;
  return to_bytes(file);
}

/// A .npy file of version `major` with this header text, whether it is right or wrong.
inline FileBytes npy_file(std::string_view header, std::string_view data = {}, int major = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(major);
  file += '\0';
  if (major == 1) {
    append_little_endian(file, static_cast<std::uint16_t>(header.size()));
  } else {
    append_little_endian(file, static_cast<std::uint32_t>(header.size()));
  }
  file += header;
  file += data;
  return to_bytes(file);
}

struct SampleFile {
  std::string name;
  FileBytes bytes;
};

/// Small valid files that together visit every branch of the readers. The first ones are what the
/// Python packages safetensors 0.8 and NumPy 2.4 write.
inline std::vector<SampleFile> sample_files() {
  const std::string eight_zeros(8, '\0');
  return {
      {"python_safetensors",
       safetensors_file(
           R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
           R"("z":{"dtype":"BF16","shape":[0,3],"data_offsets":[4,4]},)"
           R"("b":{"dtype":"F16","shape":[2],"data_offsets":[4,8]}}     )",
           eight_zeros)},
      {"numpy_float32",
       npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }             \n",
                eight_zeros)},
      {"numpy_scalar",
       npy_file("{'descr': '<f8', 'fortran_order': False, 'shape': (), }                 \n",
                eight_zeros)},
      {"numpy_bfloat16",
       npy_file("{'descr': '<V2', 'fortran_order': False, 'shape': (4,), }               \n",
                eight_zeros)},
      {"numpy_version_2",
       npy_file("{'descr': '<u2', 'fortran_order': False, 'shape': (0, 3), }             \n", "",
                /*major=*/2)},
      {"numpy_version_3",
       npy_file("{\"shape\":(1,2,4),\"descr\":\"|i1\",\"fortran_order\":False}", eight_zeros,
                /*major=*/3)},
      {"empty_safetensors", safetensors_file("{}")},
      {"escapes_safetensors",
       safetensors_file(R"({"\u00e9\ud83d\ude00\n\"\\\/\b\f\r\t" : { "shape" : [ 1 , 8 ] ,)"
                        "\n\t"
                        R"("data_offsets":[0,8],"dtype":"U8"},"__metadata__":{"":"é","x":""}} )"
                        "\r\n",
                        eight_zeros)},
  };
}

}  // namespace openvc::io::testing
