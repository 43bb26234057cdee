// SPDX-License-Identifier: BSD-3-Clause
#include "timing/record_kernels.hpp"

#include <cstddef>
#include <vector>

#include "cuda/sm100/launch.hpp"
#include "timing/recorder.hpp"

namespace openvc::timing {
namespace {

constexpr std::size_t kAlignment = schedule::kSectionAlignment;
struct alignas(kAlignment) Chunk {
  std::byte bytes[kAlignment];
};

/// Memory of the device for so many bytes.
std::vector<Chunk> chunks(std::size_t bytes) { return std::vector<Chunk>(bytes / kAlignment + 1); }

std::vector<Chunk> output_of(std::int64_t rows) {
  return chunks(static_cast<std::size_t>(rows * numerics::kHeadDim) * sizeof(std::uint16_t));
}

}  // namespace

Trace record_hopper(const low_work::Variant& variant, int key_blocks) {
  name_variants();
  const std::int64_t keys = std::int64_t{key_blocks} * numerics::kKeyBlock;
  const std::int64_t queries = std::int64_t{variant.cluster_size} * cuda::sm90::kRowsPerBlock;
  const low_work::HostInputs host(queries, keys);
  std::vector<Chunk> prepared = chunks(host.bytes());
  host.write(variant, prepared.front().bytes);
  std::vector<Chunk> out = output_of(queries);
  TraceRecorder recorder(variant.name);
  variant.launch(host.parameters(variant, prepared.front().bytes, host.output(out.front().bytes),
                                 variant.cluster_size, keys),
                 cuda::device_info(0), nullptr);
  return recorder.take();
}

Trace record_blackwell(int key_blocks) {
  name_variants();
  constexpr int kClusterRows = 2 * numerics::kQueryBlock;
  const low_work::HostInputs host(kClusterRows, std::int64_t{key_blocks} * numerics::kKeyBlock,
                                  cuda::sm100::kPackedFormat);
  std::vector<Chunk> prepared = chunks(host.bytes());
  host.write({.name = "blackwell", .launch = nullptr, .cluster_size = 0}, prepared.front().bytes);
  std::vector<Chunk> out = output_of(kClusterRows);
  TraceRecorder recorder("blackwell");
  cuda::sm100::launch(host.view(prepared.front().bytes), host.output(out.front().bytes), nullptr,
                      nullptr);
  return recorder.take();
}

}  // namespace openvc::timing
