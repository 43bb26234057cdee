// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/host/tensor_map.hpp"

#include <cuda_runtime_api.h>

#include <string>

#include "cuda/host/check.hpp"

namespace openvc::cuda {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

EncodeTiled encode_entry_point() {
  // Looked up once; the driver cannot change under a running process.
  static const EncodeTiled entry = [] {
    constexpr unsigned kFirstVersion = 12000;  // CUDA 12.0 introduced tensor maps
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kFirstVersion,
                                           cudaEnableDefault, &result),
          "looking up cuTensorMapEncodeTiled");
    if (result != cudaDriverEntryPointSuccess || function == nullptr) {
      throw Error(ErrorCode::unsupported,
                  "the CUDA driver does not offer tensor maps (cuTensorMapEncodeTiled); install a "
                  "driver for CUDA 12.0 or newer");
    }
    return reinterpret_cast<EncodeTiled>(function);
  }();
  return entry;
}

}  // namespace

CUtensorMap encode_tensor_map(const ByteTensor& tensor, TileSwizzle swizzle) {
  constexpr int kRank = 3;
  const cuuint64_t shape[kRank] = {tensor.shape[0], tensor.shape[1], tensor.shape[2]};
  const cuuint64_t strides[kRank - 1] = {tensor.row_bytes, tensor.plane_bytes};
  const cuuint32_t box[kRank] = {tensor.box[0], tensor.box[1], 1};
  const cuuint32_t element_strides[kRank] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode_entry_point()(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT8, kRank, const_cast<void*>(tensor.data), shape, strides,
      box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
      swizzle == TileSwizzle::bytes_128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_32B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw Error(ErrorCode::device_failure,
                "CUDA: encoding a tensor map of " + std::to_string(shape[0]) + " x " +
                    std::to_string(shape[1]) + " x " + std::to_string(shape[2]) +
                    " bytes failed with driver error " + std::to_string(static_cast<int>(result)));
  }
  return map;
}

}  // namespace openvc::cuda
