// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "cpu/prepare.hpp"
#include "cpu/thread_pool.hpp"
#include "cuda/attention/arguments.hpp"
#include "cuda/host/device.hpp"
#include "cuda/sm90/config.hpp"
#include "cuda/sm90/launch.hpp"
#include "numerics/half.hpp"

// The Hopper kernel and variants of it whose clocks a block of keys are compared: on the card by
// low_work.cu, on the model of the machine by model/timing.

namespace openvc::low_work {

using Launch = void (*)(const cuda::Parameters&, const cuda::DeviceInfo&, cudaStream_t);

struct Variant {
  const char* name;
  Launch launch;
  int cluster_size;
  int extra_steps = 0;
  bool wide = false;
  bool causal = false;
  bool equal_keys = false;  // all key tiles the same: maxima do not move
};

/// All of them. low_work_kernels.cuh defines it.
std::span<const Variant> variants();

/// One head of normal numbers, prepared once with room for all extra steps; a launch takes as many
/// queries and keys of it as it wants, under the rule it wants.
class HostInputs {
 public:
  HostInputs(std::int64_t queries, std::int64_t keys,
             const schedule::PackedFormat& format = cuda::sm90::kPackedFormat) {
    const schedule::Problem problem{.queries = queries, .keys = keys};
    std::mt19937_64 generator(1);
    std::normal_distribution<float> normal;
    const auto random = [&](std::int64_t rows) {
      std::vector<std::uint16_t> data(static_cast<std::size_t>(rows * numerics::kHeadDim));
      for (auto& x : data) x = numerics::float_to_bfloat16(normal(generator));
      return data;
    };
    const auto q = random(queries), k = random(keys), v = random(keys);
    const auto view = [&](const std::vector<std::uint16_t>& data, std::int64_t rows) {
      TensorView t{.data = data.data(), .shape = {1, rows, 1, numerics::kHeadDim}};
      t.strides = contiguous_strides(t.shape);
      return t;
    };
    schedule::PrepareRequest request{.q = view(q, queries),
                                     .k = view(k, keys),
                                     .v = view(v, keys),
                                     .problem = problem,
                                     .softmax_scale = 0.08838834764831845f,
                                     .with_log_sum_exp = false,
                                     .format = format};
    request.numerics.max_extra_steps = numerics::kMaxExtraSteps;
    request.numerics.rotation = Choice::never;
    view_ = schedule::prepared_view(request, nullptr);
    storage_.resize(view_.layout.bytes + schedule::kSectionAlignment);
    void* start = storage_.data();
    std::size_t space = storage_.size();
    data_ = static_cast<std::byte*>(
        std::align(schedule::kSectionAlignment, view_.layout.bytes, start, space));
    cpu::prepare(request, data_, *cpu::shared_pool(0));
  }

  [[nodiscard]] std::size_t bytes() const { return view_.layout.bytes; }

  /// Writes what the variant reads to `target`, bytes() of host memory.
  void write(const Variant& variant, std::byte* target) const {
    const schedule::PreparedLayout& layout = view_.layout;
    std::copy_n(data_, layout.bytes, target);
    if (variant.equal_keys) {
      constexpr std::size_t kTile = std::size_t{numerics::kKeyBlock} * numerics::kHeadDim;
      for (std::int64_t row = numerics::kKeyBlock; row < layout.key_rows;
           row += numerics::kKeyBlock) {
        std::memcpy(target + layout.key_at(0, row), target + layout.key_at(0, 0), kTile);
      }
    }
    numerics::HeadRule rule;
    std::memcpy(&rule, target + layout.head_rule_at(0), sizeof(rule));
    rule.extra_steps = static_cast<std::uint8_t>(variant.extra_steps);
    rule.flags = variant.wide ? numerics::HeadRule::kWide : 0;
    std::memcpy(target + layout.head_rule_at(0), &rule, sizeof(rule));
  }

  /// All of it, without extra steps, as prepared bytes on a device have it.
  [[nodiscard]] schedule::PreparedView view(const std::byte* prepared) const {
    schedule::PreparedView view = view_;
    view.data = prepared;
    view.max_extra_steps = 0;
    return view;
  }

  /// Of a launch of `blocks` thread blocks, one work item each, on prepared bytes and an output of
  /// the device.
  [[nodiscard]] cuda::Parameters parameters(const Variant& variant, const std::byte* prepared,
                                            const MutableTensorView& out, int blocks,
                                            std::int64_t keys) const {
    schedule::PreparedView view = view_;
    view.data = prepared;
    cuda::Parameters p = cuda::make_parameters({view, out, nullptr}, cuda::sm90::kTileShape);
    p.problem.queries = std::int64_t{blocks} * cuda::sm90::kRowsPerBlock;
    p.problem.keys = keys;
    p.problem.mask = variant.causal ? Mask::causal : Mask::none;
    return p;
  }

  [[nodiscard]] MutableTensorView output(void* data) const {
    MutableTensorView out;
    out.data = data;
    out.shape = {1, view_.problem.queries, 1, numerics::kHeadDim};
    out.strides = contiguous_strides(out.shape);
    out.device = {DeviceType::cuda, 0};
    return out;
  }

 private:
  schedule::PreparedView view_;
  std::vector<std::byte> storage_;
  std::byte* data_ = nullptr;
};

}  // namespace openvc::low_work
