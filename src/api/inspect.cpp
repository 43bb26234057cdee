// SPDX-License-Identifier: BSD-3-Clause
#include "openvc/inspect.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/prepared.hpp"
#include "numerics/contract.hpp"
#include "openvc/status.hpp"
#include "schedule/prepared_layout.hpp"
#if defined(OPENVC_WITH_CUDA)
#include "cuda/host/device_copy.hpp"
#endif

namespace openvc {

std::vector<PreparedSection> sections(const Prepared& prepared) {
  const schedule::PreparedView& view = prepared.impl().view;
  const schedule::PreparedLayout& layout = view.layout;
  const schedule::Problem& problem = view.problem;
  constexpr std::int64_t kChannels = numerics::kHeadDim;
  constexpr std::int64_t kColumns = numerics::kColumnsPerStep;
  const std::int64_t bh = problem.batch_heads();
  const std::int64_t queries = layout.query_rows;
  const std::int64_t keys = problem.padded_keys();
  const std::int64_t steps = view.max_extra_steps;

  std::vector<PreparedSection> all;
  const auto add = [&](const char* name, const char* type, std::size_t item_bytes,
                       std::size_t offset, std::vector<std::int64_t> shape) {
    std::size_t bytes = item_bytes;
    for (const std::int64_t length : shape) bytes *= static_cast<std::size_t>(length);
    all.push_back({name, type, std::move(shape), view.data + offset, bytes});
  };
  const auto add_codes = [&](const char* name, std::size_t offset,
                             std::vector<std::int64_t> shape) {
    add(name, "e4m3", 1, offset, std::move(shape));
  };
  const auto add_floats = [&](const char* name, std::size_t offset,
                              std::vector<std::int64_t> shape) {
    add(name, "float32", sizeof(float), offset, std::move(shape));
  };
  add_codes("query_codes", layout.query_codes, {bh, queries, kChannels});
  add_codes("key_codes", layout.key_codes, {bh, keys, kChannels});
  add_codes("value_codes", layout.value_codes,
            {bh, problem.padded_key_blocks(), layout.value_rows(), numerics::kKeyBlock});
  add_codes("query_columns", layout.query_columns, {steps, bh, queries, kColumns});
  add_codes("key_columns", layout.key_columns, {steps, bh, keys, kColumns});
  // [.., 0] score exponent, 1 extra steps, 2 flags (1 wide scores, 2 V on axes), 3 excess exponent.
  add("head_rules", "uint8", 1, layout.head_rules, {bh, sizeof(numerics::HeadRule)});
  add_floats("value_scales", layout.value_scales, {bh, kChannels});
  add_floats("value_means", layout.value_means, {bh, kChannels});
  if (view.with_value_axes) {
    add("value_bases", "bfloat16", sizeof(std::uint16_t), layout.value_bases,
        {bh, kChannels, layout.basis_columns()});
  }
  if (view.with_log_sum_exp) {
    add_floats("smoothing_shifts", layout.smoothing_shifts, {bh, problem.queries});
  }
  return all;
}

#if defined(OPENVC_WITH_CUDA)

std::shared_ptr<std::byte> copy_to_device(std::span<const std::byte> bytes, Device device) {
  return cuda::copy_to_device(bytes, device.index);
}

std::vector<std::byte> copy_to_host(const std::byte* bytes, std::size_t size, Device device) {
  return cuda::copy_to_host(bytes, size, device.index);
}

#else

namespace {

[[noreturn]] void refuse_copy(Device device) {
  throw Error(ErrorCode::unsupported, "device: cuda:" + std::to_string(device.index) +
                                          ", but this build has no CUDA backend. Build with "
                                          "-DOPENVC_CUDA=ON.");
}

}  // namespace

std::shared_ptr<std::byte> copy_to_device(std::span<const std::byte>, Device device) {
  refuse_copy(device);
}

std::vector<std::byte> copy_to_host(const std::byte*, std::size_t, Device device) {
  refuse_copy(device);
}

#endif

}  // namespace openvc
