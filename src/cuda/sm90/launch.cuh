// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/host/tensor_map.hpp"
#include "cuda/sm90/kernel.cuh"
#include "openvc/tensor_view.hpp"

// Host side of a launch, for one configuration of the kernel.
namespace openvc::cuda::sm90 {

inline bool is_vectorised(const MutableTensorView& out) {
  constexpr std::int64_t kVectorElements = 8;  // 16 bytes
  const auto aligned = [&](int axis) {
    return out.shape[axis] <= 1 || out.strides[axis] % kVectorElements == 0;
  };
  return reinterpret_cast<std::uintptr_t>(out.data) % 16 == 0 && aligned(kBatch) &&
         aligned(kSequence) && aligned(kHead);
}

inline Parameters make_parameters(const schedule::PreparedView& inputs,
                                  const MutableTensorView& out, float* log_sum_exp) {
  const schedule::Problem& problem = inputs.problem;
  const schedule::PreparedLayout& layout = inputs.layout;
  const auto heads = static_cast<std::uint64_t>(problem.batch_heads());
  const auto query_rows = static_cast<std::uint64_t>(problem.padded_queries());
  const auto key_rows = static_cast<std::uint64_t>(problem.padded_keys());
  constexpr std::uint64_t kRowBytes = numerics::kHeadDim;
  constexpr std::uint32_t kKeys = numerics::kKeyBlock;

  const auto rows_of = [&](std::size_t section, std::uint64_t rows, std::uint64_t planes,
                           std::uint32_t width, std::uint32_t box_rows) {
    return ByteTensor{.data = inputs.data + section,
                      .shape = {width, rows, planes},
                      .row_bytes = width,
                      .plane_bytes = rows * width,
                      .box = {width, box_rows}};
  };
  Parameters p{};
  p.query_map =
      encode_tensor_map(rows_of(layout.query_codes, query_rows, heads, kRowBytes, kRowsPerBlock),
                        TileSwizzle::bytes_128);
  p.key_map = encode_tensor_map(rows_of(layout.key_codes, key_rows, heads, kRowBytes, kKeys),
                                TileSwizzle::bytes_128);
  constexpr std::uint32_t kValueRows = schedule::kValueRows;
  p.value_map = encode_tensor_map(
      rows_of(layout.value_codes, key_rows / kKeys * kValueRows, heads, kKeys, kValueRows),
      TileSwizzle::bytes_128);
  if (inputs.max_extra_steps > 0) {
    const std::uint64_t planes = heads * static_cast<std::uint64_t>(inputs.max_extra_steps);
    p.query_columns_map = encode_tensor_map(
        rows_of(layout.query_columns, query_rows, planes, kStepBytes, kRowsPerBlock),
        TileSwizzle::bytes_32);
    p.key_columns_map = encode_tensor_map(
        rows_of(layout.key_columns, key_rows, planes, kStepBytes, kKeys), TileSwizzle::bytes_32);
  }
  const auto* data = inputs.data;
  p.problem = problem;
  p.head_rules = reinterpret_cast<const schedule::HeadRule*>(data + layout.head_rules);
  p.value_scales = reinterpret_cast<const float*>(data + layout.value_scales);
  p.value_means = reinterpret_cast<const float*>(data + layout.value_means);
  p.smoothing_shifts = inputs.with_log_sum_exp
                           ? reinterpret_cast<const float*>(data + layout.smoothing_shifts)
                           : nullptr;
  p.log_sum_exp = log_sum_exp;
  p.output = out.data;
  p.output_batch_stride = out.shape[kBatch] > 1 ? out.strides[kBatch] : 0;
  p.output_row_stride = out.shape[kSequence] > 1 ? out.strides[kSequence] : 0;
  p.output_head_stride = out.shape[kHead] > 1 ? out.strides[kHead] : 0;
  p.output_type = out.type == ElementType::float16 ? OutputType::float16 : OutputType::bfloat16;
  p.output_vectorised = is_vectorised(out);
  return p;
}

/// Queues the kernel on the current device.
template <class Config>
void launch_kernel(const Parameters& parameters, const DeviceInfo& device, cudaStream_t stream) {
  constexpr KernelConfig kConfig = Config::kValue;
  constexpr std::size_t kSharedBytes = sizeof(Storage<Config>) + alignof(Storage<Config>);
  static_assert(kSharedBytes <= kSharedMemoryLimit);
  const auto kernel = attention_kernel<Config>;
  const auto reserve_shared_memory = [kernel] {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
          "reserving shared memory for the attention kernel");
  };
  static OncePerDevice once;
  once(device.ordinal, reserve_shared_memory);

  const schedule::WorkQueue queue(parameters.problem, kRowsPerBlock * kConfig.cluster_size);
  const std::int64_t clusters =
      std::min<std::int64_t>(queue.count, device.multiprocessors / kConfig.cluster_size);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(clusters * kConfig.cluster_size));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream;
  std::array<cudaLaunchAttribute, 2> attributes{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {static_cast<unsigned>(kConfig.cluster_size), 1, 1};
  // The blocks set themselves up while the kernel before ends, and then wait for it.
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
  cudaError_t status = cudaLaunchKernelEx(&config, kernel, parameters);
  if (status == cudaErrorInvalidValue) {
    // The device has been reset, or has another context: the reservation is part of the context.
    (void)cudaGetLastError();
    reserve_shared_memory();
    status = cudaLaunchKernelEx(&config, kernel, parameters);
  }
  check(status, "launching the attention kernel");
}

}  // namespace openvc::cuda::sm90
