// SPDX-License-Identifier: BSD-3-Clause
#include "machine/tensor_core.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "machine/cluster.hpp"
#include "machine/matrix_product.hpp"
#include "machine/rounding.hpp"
#include "machine/swizzle.hpp"

namespace openvc::model {
namespace {

constexpr std::size_t kRegisterBytes = sizeof(std::uint32_t);
constexpr int kGroupRows = 8;  // of a descriptor's stride, and of a fragment
constexpr int kRowChunks = kProductDepth / static_cast<int>(kChunkBytes);

/// PTX ISA 9.0, 9.7.15.5.1.2.2: the matrix descriptor of a K-major operand.
Matrix decode(std::uint64_t descriptor, const char* name, const Product& product) {
  const auto field = [&](int first, int bits) {
    return static_cast<std::uint32_t>(descriptor >> first & ((1u << bits) - 1));
  };
  const auto refuse = [&](const std::string& text) {
    fail(std::string(product.instruction) + ": descriptor of " + name + " " +
         hexadecimal(descriptor) + ": " + text);
  };
  constexpr std::uint32_t kSpans[] = {0, 128, 64, 32};  // by the swizzle mode
  Matrix matrix{.name = name};
  matrix.swizzle = kSpans[field(62, 2)];
  matrix.start = (field(0, 14) << 4) - kWindowBase;
  matrix.group_stride = field(32, 14) << 4;
  if (matrix.swizzle == 0) refuse("no swizzle; the model knows those of 32, 64 and 128 bytes");
  if (field(14, 2) != 0 || field(30, 2) != 0 || field(46, 3) != 0 || field(52, 10) != 0) {
    refuse("bits that must be zero are not");
  }
  if (field(49, 3) != 0) refuse("a base offset; the model knows tiles that start at a pattern");
  const std::uint32_t pattern = kGroupRows * matrix.swizzle;
  if (matrix.start % pattern >= matrix.swizzle) {
    refuse("the tile starts at " + hexadecimal(matrix.start + kWindowBase) +
           "; expected a multiple of " + std::to_string(pattern) + ", the swizzle's pattern");
  }
  if (matrix.start % matrix.swizzle + kProductDepth > matrix.swizzle) {
    refuse("32 bytes of k reach beyond the swizzle's span of " + std::to_string(matrix.swizzle));
  }
  return matrix;
}

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

std::vector<std::byte> read(const Matrix& matrix) {
  const SharedMemory& shared = cluster().block().shared;
  std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.rows) * kProductDepth);
  std::byte* target = bytes.data();
  for_each_chunk(matrix, [&](std::uint32_t offset, std::uint32_t, std::uint32_t) {
    std::memcpy(target, shared.data() + offset, kChunkBytes);
    target += kChunkBytes;
  });
  return bytes;
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

void TensorCore::begin_reading(const Matrix& matrix, const char* instruction) {
  SharedMemory& shared = cluster().block().shared;
  Reference first;
  for_each_chunk(matrix, [&](std::uint32_t offset, std::uint32_t row, std::uint32_t column) {
    const auto refuse = [&](const std::string& text) {
      fail(std::string(instruction) + ": row " + std::to_string(row) + " of " + matrix.name +
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
             cluster().describe_barrier(rank_, chunk.barrier));
    }
    if (!shared.is_fenced(offset)) {
      refuse("threads have stored it, and no fence.proxy.async came between");
    }
    const std::string wrong = wrong_layout(matrix, chunk, first, row, column);
    if (!wrong.empty()) refuse(wrong);
    shared.last_reader(offset, warp_) = issued_;
  });
}

namespace {

/// A from the registers of the lanes: rows l / 4 and l / 4 + 8, bytes 4 (l % 4) and 16 further.
std::vector<std::byte> read(const std::array<const std::uint32_t*, kWarpLanes>& registers) {
  std::vector<std::byte> bytes(kProductRows * kProductDepth);
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t row = lane / 4 + 8 * (i % 2);
      const std::size_t k = 4 * (lane % 4) + 16 * (i / 2);
      std::memcpy(bytes.data() + row * kProductDepth + k, &registers[lane][i], 4);
    }
  }
  return bytes;
}

const Product& product_of(const Operands& lanes, std::size_t lane) {
  return *static_cast<const Product*>(lanes[lane]);
}

bool is_same(const Product& a, const Product& b) {
  return std::strcmp(a.instruction, b.instruction) == 0 && a.a_descriptor == b.a_descriptor &&
         a.b_descriptor == b.b_descriptor && a.accumulate == b.accumulate;
}

}  // namespace

std::string ProductLog::add(unsigned warp, const Product& product) {
  const std::uint64_t number = issued_.at(warp)++ - first_;
  if (number == products_.size()) {
    products_.push_back(product);
  } else if (!is_same(products_[number], product)) {
    return std::string(product.instruction) + ": another warp of the warpgroup issued " +
           products_[number].instruction + ", or with other operands, in its place";
  }
  if (*std::ranges::min_element(issued_) > first_) {
    products_.pop_front();
    ++first_;
  }
  return {};
}

bool ProductLog::is_even() const { return products_.empty(); }

TensorCore::Sums& TensorCore::sums_of(const Operands& lanes, const Product& product) {
  std::unique_ptr<Sums>& found = sums_[product_of(lanes, 0).d];
  if (found != nullptr) return *found;
  found = std::make_unique<Sums>();
  found->count = product.columns / (product.sum == Product::Sum::binary16 ? 4 : 2);
  const auto count = static_cast<std::size_t>(found->count);
  found->values.resize(kWarpLanes * count);
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    std::byte* registers = product_of(lanes, lane).d;
    found->registers[lane] = registers;
    std::memcpy(found->values.data() + lane * count, registers, count * kRegisterBytes);
    std::memset(registers, kPoison, count * kRegisterBytes);
  }
  return *found;
}

void TensorCore::issue(const Operands& lanes) {
  const Product& product = product_of(lanes, 0);
  constexpr unsigned kWarpgroupWarps = 4;
  for (std::size_t lane = 1; lane < kWarpLanes; ++lane) {
    if (!is_same(product, product_of(lanes, lane))) {
      fail(std::string(product.instruction) + ": lanes of the warp have unlike operands");
    }
  }
  const std::string unlike =
      cluster().block().product_logs[warp_ / kWarpgroupWarps].add(warp_ % kWarpgroupWarps, product);
  if (!unlike.empty()) fail(unlike);
  if (!fenced_) {
    fail(std::string(product.instruction) +
         ": no wgmma.fence since the warp last had access to the registers of a product");
  }
  Pending pending{.product = product,
                  .sums = nullptr,
                  .a_registers = {},
                  .a = {},
                  .b = {},
                  .a_bytes = {},
                  .b_bytes = {},
                  .number = 0};
  ++issued_;
  if (product.a == nullptr) {
    pending.a = decode(product.a_descriptor, "A", product);
    pending.a.first_row = static_cast<int>(warp_ % kWarpgroupWarps) * kProductRows;
    pending.a.rows = kProductRows;
    begin_reading(pending.a, product.instruction);
    pending.a_bytes = read(pending.a);
  } else {
    for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
      pending.a_registers[lane] = product_of(lanes, lane).a;
    }
    pending.a_bytes = read(pending.a_registers);
  }
  pending.b = decode(product.b_descriptor, "B", product);
  pending.b.rows = product.columns;
  begin_reading(pending.b, product.instruction);
  pending.b_bytes = read(pending.b);
  pending.number = issued_;
  pending.sums = &sums_of(lanes, product);
  ++pending.sums->products;
  open_.push_back(std::move(pending));
}

void TensorCore::commit() {
  groups_.push_back(std::move(open_));
  open_.clear();
}

void TensorCore::wait(int pending_groups) {
  while (static_cast<int>(groups_.size()) > pending_groups) {
    for (Pending& pending : groups_.front()) complete(pending);
    groups_.pop_front();
  }
}

void TensorCore::complete(Pending& pending) {
  const Product& product = pending.product;
  const bool in_registers = product.a != nullptr;
  if (pending.a_bytes != (in_registers ? read(pending.a_registers) : read(pending.a))) {
    fail(std::string(product.instruction) + ": A has changed before the product was waited for");
  }
  if (pending.b_bytes != read(pending.b)) {
    fail(std::string(product.instruction) + ": B has changed before the product was waited for");
  }
  cluster().clock().raise(cluster().product_party(rank_, warp_), pending.number);

  const std::vector<double> products = exact_products(pending.a_bytes, pending.b_bytes);
  Sums& sums = *pending.sums;
  const auto columns = static_cast<std::size_t>(product.columns);
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    std::uint32_t* values = sums.values.data() + lane * static_cast<std::size_t>(sums.count);
    // Of every eight columns a lane has two neighbours, in the rows l / 4 and l / 4 + 8.
    for (std::size_t group = 0; group < columns / kGroupRows; ++group) {
      for (std::size_t half = 0; half < 2; ++half) {
        const double* exact =
            products.data() + (lane / 4 + 8 * half) * columns + group * kGroupRows + 2 * (lane % 4);
        if (product.sum == Product::Sum::binary16) {
          std::uint32_t& pair = values[2 * group + half];
          const auto sum = [&](int shift, double x) -> std::uint32_t {
            const auto old = static_cast<std::uint16_t>(pair >> shift);
            return double_to_half((product.accumulate ? double{numerics::half_to_float(old)} : 0) +
                                  x);
          };
          pair = sum(0, exact[0]) | sum(16, exact[1]) << 16;
        } else {
          for (std::size_t i = 0; i < 2; ++i) {
            std::uint32_t& bits = values[4 * group + 2 * half + i];
            const double old = product.accumulate ? double{numerics::float_from_bits(bits)} : 0;
            bits = numerics::float_bits(static_cast<float>(old + exact[i]));
          }
        }
      }
    }
  }
  if (--sums.products == 0) publish(sums, product.instruction);
}

void TensorCore::publish(Sums& sums, const char* instruction) {
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    std::byte* registers = sums.registers[lane];
    const auto count = static_cast<std::size_t>(sums.count);
    if (!std::all_of(registers, registers + count * kRegisterBytes,
                     [](std::byte byte) { return byte == std::byte{kPoison}; })) {
      fail(std::string(instruction) +
           ": registers of D were written before the product was waited for");
    }
    std::memcpy(registers, sums.values.data() + lane * count, count * kRegisterBytes);
  }
  fenced_ = false;
  sums_.erase(sums.registers[0]);
}

void multiply(const Product& product) {
  cluster().perhaps_yield();
  Product mine = product;
  execute_together(~0u, product.instruction, &mine, [](const Operands& lanes) {
    cluster().block().tensor_cores[cluster().warp()].issue(lanes);
  });
}

void fence_products() {
  char unused = 0;
  execute_together(~0u, "wgmma.fence", &unused, [](const Operands&) {
    cluster().block().tensor_cores[cluster().warp()].fence();
  });
}

void commit_products() {
  char unused = 0;
  execute_together(~0u, "wgmma.commit_group", &unused, [](const Operands&) {
    cluster().block().tensor_cores[cluster().warp()].commit();
  });
}

void wait_for_products(int pending_groups) {
  int pending = pending_groups;
  execute_together(~0u, "wgmma.wait_group", &pending, [](const Operands& lanes) {
    cluster().block().tensor_cores[cluster().warp()].wait(*static_cast<int*>(lanes[0]));
  });
}

}  // namespace openvc::model
