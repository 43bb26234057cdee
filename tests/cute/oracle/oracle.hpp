// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// What CuTe says about the instructions that our kernels use, in plain types: CuTe's headers need
// those of CUDA, in whose place the model of the machine has its own.
namespace openvc::cute_oracle {

/// An element of a matrix. Operands are A[m][k] and B[n][k].
struct Element {
  int row;
  int column;
  friend bool operator==(const Element&, const Element&) = default;
};

/// Which elements the threads hold: [thread][value], values in the order of registers and, in a
/// register, from the low bits on.
using Fragment = std::vector<std::vector<Element>>;

struct Fragments {
  Fragment a;
  Fragment b;
  Fragment sums;
};

/// wgmma m64n136k32 of E4M3 with A in registers. `b` is in shared memory and empty.
Fragments wgmma_f32_n136();
/// wgmma m64n128k32 of E4M3 to binary16. Both operands are in shared memory.
Fragments wgmma_f16_n128();

Fragments mma_m16n8k16_f16();
Fragments mma_m16n8k16_bf16();
Fragments mma_m16n8k32_s8();

/// ldmatrix.x4: [lane][element of 16 bits] is an element of the row (0 to 7) that the address of a
/// lane (the row) names.
Fragment ldmatrix_x4();

/// A K-major tile of bytes whose rows are as wide as its swizzle. Fields of TileSwizzle and
/// CU_TENSOR_MAP_SWIZZLE_* have the span in their names.
struct Tile {
  std::vector<std::uint32_t> offsets;  ///< of byte [row * width + column]
  int swizzle_span;                    ///< that TMA has to be told, bytes
};
/// Of 128, 136 or 144 rows of 128 bytes, or of 128 rows of 32.
Tile tile(int rows, int width);

/// Operands in shared memory.
enum class Operand {
  queries,        ///< A, 128 rows of 128 bytes
  query_columns,  ///< A, 128 rows of 32
  keys,           ///< B of N = 128, 128 bytes
  key_columns,    ///< B of N = 128, 32 bytes
  values,         ///< B of N = 136 (wgmma) or 144 (tcgen05), 128 bytes
};

/// Matrix descriptors of an operand that starts at `address`.
struct Descriptor {
  std::uint64_t bits;
  std::string fields;  ///< for messages
};
/// [block of an instruction's rows][k-step].
std::vector<std::vector<Descriptor>> gmma_descriptors(Operand operand, std::uint32_t address);
/// CuTe's names of the fields of a descriptor.
std::string gmma_fields(std::uint64_t descriptor);

// ---- tcgen05 ------------------------------------------------------------------------------------

/// The same of tcgen05.mma with M = 128.
std::vector<std::vector<Descriptor>> umma_descriptors(Operand operand, std::uint32_t address);
std::string umma_fields(std::uint64_t descriptor);

/// tcgen05.mma kind::f8f6f4 of E4M3, M = 128, N = 128 or 144.
struct BlockProduct {
  bool binary32;  ///< sums; else binary16
  int columns;
};
std::uint32_t umma_instruction(BlockProduct product);
std::string umma_instruction_fields(std::uint32_t descriptor);

/// Of tensor memory: the first bit of an element in the 32 of a lane and column.
struct TensorPlace {
  int lane;
  int column;
  int bit;
  friend auto operator<=>(const TensorPlace&, const TensorPlace&) = default;
};
/// Of the sums, [row][column].
std::vector<std::vector<TensorPlace>> tensor_sums(BlockProduct product, bool a_in_tensor_memory);
/// Of an A operand of 128 rows of 128 E4M3, [row][k].
std::vector<std::vector<TensorPlace>> tensor_a();

enum class TensorAccess { load_x8, load_x32, load_x64_pack_16b, store_x16, store_x32 };
/// [lane][element of 16 bits of its registers], lanes from the first of the warp on.
std::vector<std::vector<TensorPlace>> tensor_access(TensorAccess access);

}  // namespace openvc::cute_oracle
