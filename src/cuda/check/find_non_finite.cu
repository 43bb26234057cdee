// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/check/find_non_finite.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "cuda/check/tensor_rows.hpp"
#include "cuda/host/capture.hpp"
#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/host/stream_memory.hpp"
#include "numerics/bits.hpp"

namespace openvc::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 256;
constexpr int kRowsPerBlock = kThreads / kWarp;
constexpr int kBlocksPerMultiprocessor = 8;
constexpr unsigned kAllLanes = 0xFFFF'FFFFu;

// What atomicMin() works on.
using Index = unsigned long long;
constexpr Index kNothingFound = std::numeric_limits<Index>::max();

/// One warp per row. The smallest index is the same whatever the order in which warps find theirs.
template <class Word>
__global__ void __launch_bounds__(kThreads)
    find_first(const TensorRows tensor, const std::uint32_t mask, Index* const first) {
  const auto lane = static_cast<std::int64_t>(threadIdx.x % kWarp);
  const std::int64_t rows = tensor.count();
  const auto stride = static_cast<std::int64_t>(gridDim.x) * kRowsPerBlock;
  for (auto row = static_cast<std::int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarp;
       row < rows; row += stride) {
    const auto* words = reinterpret_cast<const Word*>(tensor.row(row));
    for (std::int64_t begin = 0; begin < tensor.channels; begin += kWarp) {
      const std::int64_t channel = begin + lane;
      const bool bad = channel < tensor.channels && (words[channel] & mask) == mask;
      const unsigned lanes = __ballot_sync(kAllLanes, bad);
      if (lanes == 0) continue;
      // Later elements of this warp have larger indices: it is done.
      if (lane == 0) {
        const std::int64_t index =
            row * tensor.channels + begin + __ffs(static_cast<int>(lanes)) - 1;
        atomicMin(first, static_cast<Index>(index));
      }
      return;
    }
  }
}

}  // namespace

std::int64_t find_non_finite(const TensorView& tensor, const Execution& execution) {
  const DeviceGuard guard(tensor.device.index);
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  if (is_capturing(stream)) {
    throw Error(ErrorCode::unsupported,
                "stream: it is being captured into a CUDA graph, and OPEN_VC_ATTN_CHECK=1 has to "
                "wait for the device; expected a stream that is not captured. Check the call "
                "outside the capture, or unset the variable.");
  }
  const TensorRows rows = make_tensor_rows(tensor);
  const std::int64_t blocks = std::min<std::int64_t>(
      numerics::ceil_div(rows.count(), kRowsPerBlock),
      std::int64_t{device_info(tensor.device.index).multiprocessors} * kBlocksPerMultiprocessor);

  const std::shared_ptr<std::byte> memory = allocate(sizeof(Index), tensor.device.index, execution);
  auto* first = reinterpret_cast<Index*>(memory.get());
  check(cudaMemsetAsync(first, 0xFF, sizeof(Index), stream), "preparing the finite check");
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  const auto launch = [&](auto kernel) {
    check(cudaLaunchKernelEx(&config, kernel, rows, exponent_mask(tensor.type), first),
          "launching the finite check");
  };
  if (element_size(tensor.type) == sizeof(std::uint16_t)) {
    launch(find_first<std::uint16_t>);
  } else {
    launch(find_first<std::uint32_t>);
  }
  Index found = kNothingFound;
  check(cudaMemcpyAsync(&found, first, sizeof(found), cudaMemcpyDeviceToHost, stream),
        "copying the result of the finite check");
  check(cudaStreamSynchronize(stream), "waiting for the finite check");
  return found == kNothingFound ? -1 : static_cast<std::int64_t>(found);
}

}  // namespace openvc::cuda
