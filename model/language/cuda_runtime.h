// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "machine/machine.hpp"
#include "machine/recorder.hpp"

// What kernels take for granted of CUDA C++: its words, vector types, coordinates and intrinsics.
// Names are CUDA's.

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline const auto& threadIdx = openvc::model::coordinates.thread;
inline const auto& blockIdx = openvc::model::coordinates.block;
inline const auto& blockDim = openvc::model::coordinates.block_size;
inline const auto& gridDim = openvc::model::coordinates.grid_size;

inline void __syncthreads() { openvc::model::synchronize_block(); }
inline void __syncwarp() { openvc::model::execute_aligned("bar.warp.sync"); }

inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline float __fmaf_rn(float a, float b, float c) {
  openvc::model::count(openvc::model::InstructionClass::fma);
  return __builtin_fmaf(a, b, c);
}
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<std::int8_t>(a >> (8 * i)) * static_cast<std::int8_t>(b >> (8 * i));
  }
  return sum;
}
template <class T>
T __ldg(const T* pointer) {
  return *pointer;
}

// Threads take turns, so nothing comes between. No ordinary accesses: they do not race.
template <class T>
[[gnu::no_sanitize_thread]] T atomicAdd(T* target, T x) {
  const T old = *target;
  *target = old + x;
  return old;
}
template <class T>
[[gnu::no_sanitize_thread]] T atomicMin(T* target, T x) {
  const T old = *target;
  if (x < old) *target = x;
  return old;
}

namespace openvc::model {

/// A lane's value, and where another's is copied to.
template <class T>
struct Exchange {
  T value;
  int source;  // lane
  T result;
};

template <class T>
T exchange(unsigned mask, const char* instruction, T value, int source) {
  count(InstructionClass::exchange);
  Exchange<T> mine{value, source, value};
  execute_together(mask, instruction, &mine, [](const Operands& lanes) {
    for (void* lane : lanes) {
      if (lane == nullptr) continue;
      auto& to = *static_cast<Exchange<T>*>(lane);
      void* from = lanes.at(static_cast<std::size_t>(to.source));
      if (from == nullptr) throw Fault("a shuffle from a lane that takes no part");
      to.result = static_cast<Exchange<T>*>(from)->value;
    }
  });
  return mine.result;
}

/// All lanes get combine(...) of the values of all.
template <unsigned (*kCombine)(unsigned, unsigned, int)>
unsigned reduce(unsigned mask, const char* instruction, unsigned value) {
  count(InstructionClass::vote);
  Exchange<unsigned> mine{value, 0, 0};
  execute_together(mask, instruction, &mine, [](const Operands& lanes) {
    unsigned result = 0;
    for (int i = 0; i < kWarpLanes; ++i) {
      void* lane = lanes.at(static_cast<std::size_t>(i));
      if (lane == nullptr) continue;
      result = kCombine(result, static_cast<Exchange<unsigned>*>(lane)->value, i);
    }
    for (void* lane : lanes) {
      if (lane != nullptr) static_cast<Exchange<unsigned>*>(lane)->result = result;
    }
  });
  return mine.result;
}
inline unsigned larger(unsigned a, unsigned b, int) { return a > b ? a : b; }
inline unsigned collect_bit(unsigned bits, unsigned bit, int lane) { return bits | bit << lane; }

}  // namespace openvc::model

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int first = openvc::model::lane() / width * width;
  return openvc::model::exchange(mask, "shfl.idx", value, first + source % width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return openvc::model::exchange(mask, "shfl.bfly", value, openvc::model::lane() ^ distance);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int distance) {
  const int lane = openvc::model::lane();
  return openvc::model::exchange(mask, "shfl.up", value, lane < distance ? lane : lane - distance);
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return openvc::model::reduce<openvc::model::larger>(mask, "redux.max", value);
}
inline unsigned __ballot_sync(unsigned mask, bool value) {
  return openvc::model::reduce<openvc::model::collect_bit>(mask, "vote.ballot", value ? 1u : 0u);
}
inline int __any_sync(unsigned mask, bool value) { return __ballot_sync(mask, value) != 0 ? 1 : 0; }
