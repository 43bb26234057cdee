// SPDX-License-Identifier: BSD-3-Clause
//
// How a Hopper tensor core adds: E4M3 operands and what wgmma makes of them after every k-step. The
// rule of the model (model/machine/hopper_product.hpp) was found with such data and is held to it.
//
//   product_rounding <file> [tiles rows columns]     default 22 16 8; the whole tiles: 121 64 128
//
// The file is little-endian: four 32-bit integers (tiles, rows, columns, k-steps), then of
// every tile the codes of A [rows][32 k-steps] and of B [columns][32 k-steps], the binary16 sums
// [k-step][row][column] and the binary32 sums [k-step][row][column], each k-step added to the last.
#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/device_data.cuh"
#include "cuda/host/check.hpp"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/synchronize.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace {

using openvc::benchmarks::Buffer;
using openvc::cuda::check;
namespace ptx = openvc::cuda::ptx;

constexpr int kRows = 64;
constexpr int kColumns = 128;  // of binary16 sums; binary32 sums have eight more
constexpr int kWideColumns = 136;
constexpr int kStepDepth = 32;
constexpr int kSteps = 4;
constexpr int kDepth = kStepDepth * kSteps;
constexpr int kThreads = 128;  // a warpgroup

struct alignas(1024) Tiles {
  std::uint8_t a[kRows * kDepth];
  alignas(1024) std::uint8_t b[kWideColumns * kDepth];
};
constexpr int kSharedBytes = sizeof(Tiles) + alignof(Tiles);

/// Rows of kDepth bytes by the 128-byte swizzle.
__device__ void load_tile(std::uint8_t* tile, const std::uint8_t* codes, int rows) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * kDepth; i += kThreads) {
    const int row = i / kDepth;
    tile[i ^ ((row % 8) << 4)] = codes[i];
  }
}

__device__ Tiles& load_tiles(const std::uint8_t* a, const std::uint8_t* b) {
  auto* shared = &ptx::dynamic_shared<std::uint8_t>();
  const std::uint32_t address = ptx::shared_address(shared);
  auto& tiles = *reinterpret_cast<Tiles*>(shared + (0u - address) % alignof(Tiles));
  load_tile(tiles.a, a + std::size_t{blockIdx.x} * kRows * kDepth, kRows);
  load_tile(tiles.b, b + std::size_t{blockIdx.x} * kWideColumns * kDepth, kWideColumns);
  ptx::fence_proxy_async_shared();
  __syncthreads();
  return tiles;
}

// Place of a thread in the fragments of A and D: rows row() and row() + 8, column pairs at pair().
__device__ int row() {
  return 16 * (static_cast<int>(threadIdx.x) / 32) + static_cast<int>(threadIdx.x) % 32 / 4;
}
__device__ int pair() { return 2 * (static_cast<int>(threadIdx.x) % 4); }

/// sums [tile][k-step][row][column]: D of binary16, both operands in shared memory.
__global__ void add_binary16(const std::uint8_t* a, const std::uint8_t* b, std::uint16_t* sums) {
  Tiles& tiles = load_tiles(a, b);
  const auto a_tile = ptx::matrix_descriptor<ptx::Swizzle::bytes_128>(ptx::shared_address(tiles.a));
  const auto b_tile = ptx::matrix_descriptor<ptx::Swizzle::bytes_128>(ptx::shared_address(tiles.b));
  std::uint32_t d[kColumns / 4] = {};
  for (int step = 0; step < kSteps; ++step) {
    ptx::warpgroup_fence_operand(d);
    ptx::wgmma_fence();
    ptx::wgmma_m64n128k32_f16_ss(d, ptx::advance_descriptor(a_tile, kStepDepth * step),
                                 ptx::advance_descriptor(b_tile, kStepDepth * step), step != 0);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::warpgroup_fence_operand(d);
    std::uint16_t* out = sums + (std::size_t{blockIdx.x} * kSteps + step) * kRows * kColumns;
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {
      std::uint16_t* at = out + (row() + 8 * (i % 2)) * kColumns + i / 2 * 8 + pair();
      at[0] = static_cast<std::uint16_t>(d[i]);
      at[1] = static_cast<std::uint16_t>(d[i] >> 16);
    }
  }
}

/// sums [tile][k-step][row][column]: D of binary32, A in registers.
__global__ void add_binary32(const std::uint8_t* a, const std::uint8_t* b, float* sums) {
  Tiles& tiles = load_tiles(a, b);
  const auto b_tile = ptx::matrix_descriptor<ptx::Swizzle::bytes_128>(ptx::shared_address(tiles.b));
  const std::uint8_t* a_tile = a + std::size_t{blockIdx.x} * kRows * kDepth;
  float d[kWideColumns / 2] = {};
  for (int step = 0; step < kSteps; ++step) {
    std::uint32_t fragment[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int k = kStepDepth * step + 2 * pair() + 16 * (i / 2);
      fragment[i] =
          *reinterpret_cast<const std::uint32_t*>(a_tile + (row() + 8 * (i % 2)) * kDepth + k);
    }
    ptx::warpgroup_fence_operand(d);
    ptx::warpgroup_fence_operand(fragment);
    ptx::wgmma_fence();
    ptx::wgmma_m64n136k32_f32_rs(d, fragment, ptx::advance_descriptor(b_tile, kStepDepth * step),
                                 step != 0);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    ptx::warpgroup_fence_operand(d);
    ptx::warpgroup_fence_operand(fragment);
    float* out = sums + (std::size_t{blockIdx.x} * kSteps + step) * kRows * kWideColumns;
#pragma unroll
    for (int i = 0; i < kWideColumns / 2; ++i) {
      out[(row() + 8 * (i / 2 % 2)) * kWideColumns + i / 4 * 8 + pair() + i % 2] = d[i];
    }
  }
}

enum class Codes {
  finite,
  narrow,
  positive,
  sparse,
  probabilities,
  one_magnitude,
  one_large,
  subnormal,
  exponent_by_step,
  back_and_forth,
  rare_nan
};
constexpr int kKinds = 11;

class Operands {
 public:
  /// Codes [row][k] of a tile. `negates`: of the two operands of back_and_forth, the one that
  /// changes the sign of every second k-step.
  std::vector<std::uint8_t> tile(Codes kind, int rows, bool negates) {
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows) * kDepth);
    std::array<unsigned, kSteps> exponents{};
    for (unsigned& exponent : exponents) exponent = 1 + random_() % 14;
    for (int i = 0; i < rows * kDepth; ++i) {
      const int step = i % kDepth / kStepDepth;
      codes[i] = kind == Codes::back_and_forth && step % 2 != 0
                     ? codes[i - kStepDepth] ^ (negates ? kSign : 0)
                     : code(kind, exponents[step]);
    }
    return codes;
  }

 private:
  static constexpr unsigned kSign = 0x80;
  static constexpr unsigned kNan = 0x7F;
  static constexpr unsigned kMantissas = 8;

  std::uint8_t finite(unsigned mask) {
    for (;;) {
      const unsigned code = random_() & mask;
      if ((code & kNan) != kNan) return static_cast<std::uint8_t>(code);
    }
  }

  /// Either sign, an exponent field in [first, first + count), any mantissa.
  std::uint8_t of_exponents(unsigned first, unsigned count) {
    return static_cast<std::uint8_t>(
        (random_() & kSign) | (first + random_() % count) * kMantissas | random_() % kMantissas);
  }

  std::uint8_t code(Codes kind, unsigned exponent) {
    switch (kind) {
      case Codes::finite:
      case Codes::back_and_forth:
        return finite(0xFF);
      case Codes::narrow:
        return of_exponents(5, 5);
      case Codes::positive:
        return finite(kNan);
      case Codes::sparse:
        return random_() % 8 == 0 ? finite(0xFF) : std::uint8_t{0};
      case Codes::probabilities:
        return static_cast<std::uint8_t>(126 - random_() % 100);
      case Codes::one_magnitude:
        return static_cast<std::uint8_t>((random_() & kSign) | 0x3F);
      case Codes::one_large:
        return random_() % 32 == 0 ? of_exponents(14, 1) : of_exponents(0, 8);
      case Codes::subnormal:
        return of_exponents(0, 2);
      case Codes::exponent_by_step:
        return of_exponents(exponent, 1);
      case Codes::rare_nan:
        return random_() % 64 == 0 ? (random_() & kSign) | kNan : of_exponents(5, 5);
    }
    throw std::logic_error("product_rounding: unknown kind of codes");
  }

  std::mt19937 random_{1};
};

template <class T>
std::vector<T> download(const Buffer& buffer, std::size_t count) {
  std::vector<T> values(count);
  check(cudaMemcpy(values.data(), buffer.get(), count * sizeof(T), cudaMemcpyDeviceToHost),
        "copying sums");
  return values;
}

/// The first `rows` rows of `columns` of a matrix.
template <class T>
void write(std::ofstream& file, const T* matrix, int rows, int columns, int row_elements) {
  for (int i = 0; i < rows; ++i) {
    file.write(reinterpret_cast<const char*>(matrix + std::ptrdiff_t{i} * row_elements),
               static_cast<std::streamsize>(columns * sizeof(T)));
  }
}

void run(const std::string& path, int tiles, int rows, int columns) {
  Operands operands;
  std::vector<std::uint8_t> a;
  std::vector<std::uint8_t> b;
  for (int tile = 0; tile < tiles; ++tile) {
    const auto of_a = operands.tile(static_cast<Codes>(tile % kKinds), kRows, true);
    const auto of_b =
        operands.tile(static_cast<Codes>((tile + tile / kKinds) % kKinds), kWideColumns, false);
    a.insert(a.end(), of_a.begin(), of_a.end());
    b.insert(b.end(), of_b.begin(), of_b.end());
  }
  const auto count = static_cast<std::size_t>(tiles) * kSteps * kRows;
  const Buffer a_buffer(a.size());
  const Buffer b_buffer(b.size());
  const Buffer half_buffer(count * kColumns * sizeof(std::uint16_t));
  const Buffer float_buffer(count * kWideColumns * sizeof(float));
  check(cudaMemcpy(a_buffer.get(), a.data(), a.size(), cudaMemcpyHostToDevice), "copying A");
  check(cudaMemcpy(b_buffer.get(), b.data(), b.size(), cudaMemcpyHostToDevice), "copying B");
  add_binary16<<<tiles, kThreads, kSharedBytes>>>(
      a_buffer.get<std::uint8_t>(), b_buffer.get<std::uint8_t>(), half_buffer.get<std::uint16_t>());
  check(cudaGetLastError(), "adding in binary16");
  add_binary32<<<tiles, kThreads, kSharedBytes>>>(
      a_buffer.get<std::uint8_t>(), b_buffer.get<std::uint8_t>(), float_buffer.get<float>());
  check(cudaGetLastError(), "adding in binary32");
  check(cudaDeviceSynchronize(), "multiplying");
  const auto halves = download<std::uint16_t>(half_buffer, count * kColumns);
  const auto floats = download<float>(float_buffer, count * kWideColumns);

  std::ofstream file(path, std::ios::binary);
  const std::array<std::int32_t, 4> header{tiles, rows, columns, kSteps};
  file.write(reinterpret_cast<const char*>(header.data()), sizeof(header));
  for (int tile = 0; tile < tiles; ++tile) {
    write(file, a.data() + std::ptrdiff_t{tile} * kRows * kDepth, rows, kDepth, kDepth);
    write(file, b.data() + std::ptrdiff_t{tile} * kWideColumns * kDepth, columns, kDepth, kDepth);
    const std::ptrdiff_t first_row = std::ptrdiff_t{tile} * kSteps * kRows;
    for (int step = 0; step < kSteps; ++step) {
      write(file, halves.data() + (first_row + step * kRows) * kColumns, rows, columns, kColumns);
    }
    for (int step = 0; step < kSteps; ++step) {
      write(file, floats.data() + (first_row + step * kRows) * kWideColumns, rows, columns,
            kWideColumns);
    }
  }
  if (!file.flush()) throw std::runtime_error(path + ": could not be written");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto number = [&](int i, int fallback) {
      return i < argc ? std::atoi(argv[i]) : fallback;
    };
    const int tiles = number(2, 22);
    const int rows = number(3, 16);
    const int columns = number(4, 8);
    if (argc < 2 || argc > 5 || tiles < 1 || rows < 1 || rows > kRows || columns < 1 ||
        columns > kColumns) {
      std::fprintf(stderr,
                   "usage: product_rounding <file> [tiles rows columns], up to 64 rows and "
                   "128 columns\n");
      return 2;
    }
    run(argv[1], tiles, rows, columns);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "product_rounding: %s\n", error.what());
    return 1;
  }
  return 0;
}
