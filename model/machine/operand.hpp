// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace openvc::model {

/// A matrix in shared memory: rows of 32 bytes of k.
struct Matrix {
  const char* name;   // "A" or "B"
  unsigned rank = 0;  // of its block
  std::uint32_t start = 0;
  std::uint32_t swizzle = 0;       // span in bytes
  std::uint32_t group_stride = 0;  // of eight rows
  int first_row = 0;
  int rows = 0;
};

/// Of a matrix of the block that runs, as wgmma has it.
Matrix decode_descriptor(std::uint64_t descriptor, const char* name, const char* instruction);
/// The same, as tcgen05.mma has it.
Matrix decode_tcgen05_descriptor(std::uint64_t descriptor, const char* name,
                                 const char* instruction);

/// Its bytes, row by row.
std::vector<std::byte> read(const Matrix& matrix);

/// Who reads a matrix.
struct Reader {
  const char* instruction;
  unsigned warp;          // of the block that runs
  std::uint64_t product;  // its number
};
/// Notes that a product reads a matrix. Throws if what it finds there is not a tile that has been
/// written, in the layout of the descriptor, before the product.
void begin_reading(const Matrix& matrix, const Reader& reader);

}  // namespace openvc::model
