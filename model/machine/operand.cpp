// SPDX-License-Identifier: BSD-3-Clause
#include "machine/operand.hpp"

#include <cstring>
#include <string>

#include "machine/cluster.hpp"
#include "machine/matrix_product.hpp"
#include "machine/swizzle.hpp"

namespace openvc::model {
namespace {

constexpr int kGroupRows = 8;  // of a descriptor's stride
constexpr int kRowChunks = kProductDepth / static_cast<int>(kChunkBytes);

/// Calls visit(offset, row of the tile, chunk of the row) for every chunk of a matrix.
template <class Visit>
void for_each_chunk(const Matrix& matrix, const Visit& visit) {
  for (int i = matrix.first_row; i < matrix.first_row + matrix.rows; ++i) {
    const auto row = static_cast<std::uint32_t>(i);
    const std::uint32_t line =
        matrix.start + row / kGroupRows * matrix.group_stride + row % kGroupRows * matrix.swizzle;
    for (std::uint32_t j = 0; j < kRowChunks; ++j) {
      visit(swizzled(line + j * kChunkBytes, matrix.swizzle), row, j);
    }
  }
}

/// A chunk of a copied tile that a matrix has, and where.
struct Reference {
  const Chunk* chunk = nullptr;
  std::uint32_t row = 0;  // of the matrix
  std::uint32_t column = 0;
};

/// What is wrong if a chunk is not what the descriptor takes it for: by the first one that was
/// copied. Empty if nothing is.
std::string wrong_layout(const Matrix& matrix, const Chunk& chunk, Reference& first,
                         std::uint32_t row, std::uint32_t column) {
  if (chunk.copy == 0) return {};  // written by threads, in a layout that only they know
  if (first.chunk == nullptr) first = {&chunk, row, column};
  if (chunk.swizzle != matrix.swizzle) {
    return "the descriptor says a swizzle of " + std::to_string(matrix.swizzle) +
           " bytes, the tile was copied with one of " + std::to_string(chunk.swizzle);
  }
  const std::uint32_t expected_row = first.chunk->row + row - first.row;
  const std::uint32_t expected_column = first.chunk->column + column - first.column;
  const bool is_same_tile = chunk.copy == first.chunk->copy;
  if (is_same_tile && chunk.row == expected_row && chunk.column == expected_column) return {};
  return "expected row " + std::to_string(expected_row) + ", chunk " +
         std::to_string(expected_column) + " of the tile, found row " + std::to_string(chunk.row) +
         ", chunk " + std::to_string(chunk.column) + (is_same_tile ? "" : " of another tile") +
         "; the stride byte offset of the descriptor is " + std::to_string(matrix.group_stride);
}

}  // namespace

namespace {

/// A descriptor and what messages call it.
struct Descriptor {
  std::uint64_t bits;
  const char* name;
  const char* instruction;

  [[nodiscard]] std::uint32_t field(int first, int count) const {
    return static_cast<std::uint32_t>(bits >> first & ((1u << count) - 1));
  }
  [[noreturn]] void refuse(const std::string& text) const {
    fail(std::string(instruction) + ": descriptor of " + name + " " + hexadecimal(bits) + ": " +
         text);
  }
};

/// What the descriptors have in common: the bits from 0 to 45 and 49 to 51.
Matrix decode_place(const Descriptor& descriptor, std::uint32_t swizzle) {
  Matrix matrix{.name = descriptor.name, .rank = cluster().rank(), .swizzle = swizzle};
  matrix.start = (descriptor.field(0, 14) << 4) - kWindowBase;
  matrix.group_stride = descriptor.field(32, 14) << 4;
  if (descriptor.field(14, 2) != 0 || descriptor.field(30, 2) != 0) {
    descriptor.refuse("bits that must be zero are not");
  }
  if (descriptor.field(49, 3) != 0) {
    descriptor.refuse("a base offset; the model knows tiles that start at a pattern");
  }
  const std::uint32_t pattern = kGroupRows * swizzle;
  if (matrix.start % pattern >= swizzle) {
    descriptor.refuse("the tile starts at " + hexadecimal(matrix.start + kWindowBase) +
                      "; expected a multiple of " + std::to_string(pattern) +
                      ", the swizzle's pattern");
  }
  if (matrix.start % swizzle + kProductDepth > swizzle) {
    descriptor.refuse("32 bytes of k reach beyond the swizzle's span of " +
                      std::to_string(swizzle));
  }
  return matrix;
}

constexpr const char* kUnknownSwizzle = "no swizzle; the model knows those of 32, 64 and 128 bytes";

}  // namespace

/// PTX ISA 9.0, 9.7.15.5.1.2.2: the matrix descriptor of a K-major operand.
Matrix decode_descriptor(std::uint64_t bits, const char* name, const char* instruction) {
  const Descriptor descriptor{bits, name, instruction};
  constexpr std::uint32_t kSpans[] = {0, 128, 64, 32};  // by the swizzle mode
  const std::uint32_t swizzle = kSpans[descriptor.field(62, 2)];
  if (swizzle == 0) descriptor.refuse(kUnknownSwizzle);
  if (descriptor.field(46, 3) != 0 || descriptor.field(52, 10) != 0) {
    descriptor.refuse("bits that must be zero are not");
  }
  return decode_place(descriptor, swizzle);
}

/// PTX ISA 9.0, 9.7.16.4.1: the shared memory descriptor of a K-major operand.
Matrix decode_tcgen05_descriptor(std::uint64_t bits, const char* name, const char* instruction) {
  const Descriptor descriptor{bits, name, instruction};
  constexpr std::uint32_t kVersion = 1;
  if (descriptor.field(46, 3) != kVersion) {
    descriptor.refuse("the constant in the bits 46 to 48 is " +
                      std::to_string(descriptor.field(46, 3)) + "; expected 1");
  }
  if (descriptor.field(52, 9) != 0) descriptor.refuse("bits that must be zero are not");
  constexpr std::uint32_t kSpans[] = {0, 0, 128, 0, 64, 0, 32, 0};  // by the swizzle mode
  const std::uint32_t mode = descriptor.field(61, 3);
  if (mode == 0) descriptor.refuse(kUnknownSwizzle);
  if (kSpans[mode] == 0) {
    descriptor.refuse("swizzle mode " + std::to_string(mode) + "; the model knows 2, 4 and 6");
  }
  return decode_place(descriptor, kSpans[mode]);
}

std::vector<std::byte> read(const Matrix& matrix) {
  const SharedMemory& shared = cluster().block(matrix.rank).shared;
  std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.rows) * kProductDepth);
  std::byte* target = bytes.data();
  for_each_chunk(matrix, [&](std::uint32_t offset, std::uint32_t, std::uint32_t) {
    std::memcpy(target, shared.data() + offset, kChunkBytes);
    target += kChunkBytes;
  });
  return bytes;
}

void begin_reading(const Matrix& matrix, const Reader& reader) {
  SharedMemory& shared = cluster().block().shared;
  Reference first;
  for_each_chunk(matrix, [&](std::uint32_t offset, std::uint32_t row, std::uint32_t column) {
    const auto refuse = [&](const std::string& text) {
      fail(std::string(reader.instruction) + ": row " + std::to_string(row) + " of " + matrix.name +
           " at " + hexadecimal(kWindowBase + offset) + ": " + text);
    };
    if (!SharedMemory::is_inside(offset, kChunkBytes)) refuse("outside of shared memory");
    Chunk& chunk = shared.chunk(offset);
    if (chunk.in_flight) {
      refuse("a copy of " + cluster().describe_warp(chunk.writer) +
             " that writes it is in flight; wait for its barrier");
    }
    if (chunk.party != Chunk::kNobody && cluster().clock().at(chunk.party) <= chunk.phase) {
      refuse("a copy of " + cluster().describe_warp(chunk.writer) +
             " has written it, and the warp has not waited for phase " +
             std::to_string(chunk.phase) + " of " +
             cluster().describe_barrier(cluster().rank(), chunk.barrier));
    }
    if (chunk.party == Chunk::kNobody && shared.is_poison(offset)) refuse("nobody has written it");
    if (!shared.is_fenced(offset)) {
      refuse("threads have stored it, and no fence.proxy.async came between");
    }
    const std::string wrong = wrong_layout(matrix, chunk, first, row, column);
    if (!wrong.empty()) refuse(wrong);
    shared.last_reader(offset, reader.warp) = reader.product;
  });
}

}  // namespace openvc::model
