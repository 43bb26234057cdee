// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cpu/agreement.hpp"
#include "cpu/attention.hpp"
#include "cpu/prepare.hpp"
#include "cpu/thread_pool.hpp"
#include "cuda/host/check.hpp"
#include "cuda/output/leave_axes.hpp"
#include "cuda/sm89/launch.hpp"
#include "cuda/sm90/launch.hpp"
#include "gpu/device_buffer.hpp"
#include "numerics/repair.hpp"
#include "schedule/prepared_layout.hpp"
#include "study/families.hpp"
#include "study/tensors.hpp"

// The same prepared bytes through the CPU backend and through the kernel of an architecture.
namespace openvc::test {

/// Every byte of device memory that nobody wrote. As E4M3, binary16, bfloat16 and binary32 it is a
/// NaN, and one that no kernel produces.
inline constexpr std::uint8_t kUnwritten = 0xFF;

/// So many k-steps in every head, and no rotation.
inline NumericOptions all_steps(int steps) {
  NumericOptions options;
  options.rotation = Choice::never;
  options.max_extra_steps = steps;
  options.score_error_target = 0.0f;  // spend them all
  return options;
}

/// The attention kernel of an architecture.
struct AttentionKernel {
  const char* name;
  schedule::PackedFormat format;
  void (*launch)(const schedule::PreparedView&, const MutableTensorView&, float*, void*);
};
inline constexpr AttentionKernel kHopper{"Hopper", cuda::sm90::kPackedFormat, cuda::sm90::launch};
/// The kernel for GPUs without wgmma; tests have an image of it that a Hopper GPU runs.
inline constexpr AttentionKernel kAda{"Ada", cuda::sm89::kPackedFormat, cuda::sm89::launch};

/// What is asked of the kernel, besides the tensors.
struct AttentionCase {
  const AttentionKernel* kernel = &kHopper;
  schedule::Problem problem{};
  NumericOptions numerics{};
  float softmax_scale = 0.08838834764831845f;  // 1 / sqrt(128)
  ElementType type = ElementType::bfloat16;    // of the inputs and the output
  bool with_log_sum_exp = true;
  std::optional<std::int32_t> selected_keys{};  // so many leading ones of every sequence take part

  /// The problem without the keys that do not take part.
  [[nodiscard]] schedule::Problem seen() const {
    schedule::Problem p = problem;
    p.keys = selected_keys.value_or(static_cast<std::int32_t>(p.keys));
    return p;
  }

  [[nodiscard]] std::string describe() const {
    const schedule::Problem& p = problem;
    return std::string(kernel->name) + " " + std::string(element_name(type)) + " B" +
           std::to_string(p.batch) + " H" + std::to_string(p.heads) + " Sq" +
           std::to_string(p.queries) + " Skv" + std::to_string(p.keys) +
           (p.mask == Mask::causal ? " causal" : "") +
           (p.key_order == KeyOrder::descending ? " descending" : "") + " repair " +
           std::to_string(p.repair_rows) + " steps " + std::to_string(numerics.max_extra_steps) +
           " target " + std::to_string(numerics.score_error_target) + " scale " +
           std::to_string(softmax_scale) + " D " + std::to_string(p.head_dim) + " selected " +
           std::to_string(selected_keys.value_or(-1));
  }
};

inline AttentionCase make_case(std::int64_t batch, std::int64_t heads, std::int64_t queries,
                               std::int64_t keys, Mask mask = Mask::none) {
  AttentionCase c;
  c.problem = {.batch = batch, .heads = heads, .queries = queries, .keys = keys, .mask = mask};
  return c;
}

inline study::Tensors make_tensors(const AttentionCase& c, std::string_view family = "gaussian",
                                   std::uint64_t seed = 1) {
  const schedule::Problem& p = c.problem;
  return study::generate(family,
                         {.batch = p.batch, .queries = p.queries, .keys = p.keys, .heads = p.heads},
                         c.type, seed);
}

/// Replaces every element x of a tensor by change(b, s, h, channel, x).
template <class Change>
void transform(study::OwnedTensor& tensor, const Change& change) {
  const auto [batch, tokens, heads, channels] = tensor.shape;
  std::int64_t i = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t s = 0; s < tokens; ++s) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t c = 0; c < channels; ++c, ++i) {
          const float x = study::load_element(tensor.bytes.data(), tensor.type, i);
          study::store_element(tensor.bytes.data(), tensor.type, i, change(b, s, h, c, x));
        }
      }
    }
  }
}

using cpu::AttentionResult;

/// Prepared inputs in host memory.
class HostPrepared {
 public:
  HostPrepared(const AttentionCase& c, const study::Tensors& tensors) {
    schedule::PrepareRequest request;
    request.format = c.kernel->format;
    request.q = tensors.q.view();
    request.k = tensors.k.view();
    request.v = tensors.v.view();
    request.problem = c.problem;
    request.softmax_scale = c.softmax_scale;
    request.numerics = c.numerics;
    request.with_log_sum_exp = c.with_log_sum_exp;
    const std::int32_t selected = c.selected_keys.value_or(0);
    if (c.selected_keys) request.selection.lengths = &selected;  // makes room for the bounds
    constexpr std::size_t kAlignment = schedule::kSectionAlignment;
    storage_.assign(schedule::prepared_layout(request).bytes + kAlignment, std::byte{kUnwritten});
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    std::byte* block = storage_.data() + (kAlignment - address % kAlignment) % kAlignment;
    plans_ = numerics::summaries(cpu::prepare(request, block, *cpu::shared_pool(0)));
    view_ = schedule::prepared_view(request, block);
    if (!c.selected_keys) return;
    const schedule::SequenceBounds bounds{static_cast<std::int32_t>(c.problem.queries), selected};
    for (std::int64_t b = 0; b < c.problem.batch; ++b) {
      std::memcpy(block + view_.layout.bounds + static_cast<std::size_t>(b) * sizeof(bounds),
                  &bounds, sizeof(bounds));
    }
  }
  HostPrepared(const HostPrepared&) = delete;
  HostPrepared& operator=(const HostPrepared&) = delete;

  [[nodiscard]] const schedule::PreparedView& view() const { return view_; }
  [[nodiscard]] const std::vector<HeadPlan>& plans() const { return plans_; }

 private:
  std::vector<std::byte> storage_;
  std::vector<HeadPlan> plans_;
  schedule::PreparedView view_;
};

/// The same bytes in device memory, between guards.
class DevicePrepared {
 public:
  explicit DevicePrepared(const HostPrepared& host)
      : view_(host.view()), block_(view_.layout.bytes, kUnwritten) {
    upload(host);
    view_.data = block_.data();
  }

  /// Takes the bytes of other prepared inputs of the same problem.
  void upload(const HostPrepared& host) {
    block_.upload(host.view().data, host.view().layout.bytes);
  }

  [[nodiscard]] const schedule::PreparedView& view() const { return view_; }
  [[nodiscard]] std::byte* data() const { return block_.data(); }
  [[nodiscard]] bool guards_untouched() const { return block_.guards_untouched(); }

 private:
  schedule::PreparedView view_;
  DeviceBuffer block_;
};

/// Output and log-sum-exp in device memory, between guards, all of it unwritten at first.
class DeviceOutput {
 public:
  DeviceOutput(const schedule::Problem& problem, ElementType type)
      : DeviceOutput(
            problem, type,
            contiguous_strides({problem.batch, problem.queries, problem.heads, problem.head_dim}),
            0) {}

  /// Any strides >= 0 that keep elements apart; the tensor starts `shift` elements behind a
  /// multiple of 256 bytes.
  DeviceOutput(const schedule::Problem& problem, ElementType type,
               const std::array<std::int64_t, 4>& strides, std::int64_t shift)
      : shift_(shift),
        output_(reach(problem, strides, shift) * sizeof(std::uint16_t), kUnwritten),
        log_sum_exp_(
            static_cast<std::size_t>(problem.batch_heads() * problem.queries) * sizeof(float),
            kUnwritten) {
    view_.data = output_.data() + shift * std::int64_t{sizeof(std::uint16_t)};
    view_.type = type;
    view_.device = {DeviceType::cuda, 0};
    view_.shape = {problem.batch, problem.queries, problem.heads, problem.head_dim};
    view_.strides = strides;
  }

  [[nodiscard]] const MutableTensorView& view() const { return view_; }
  [[nodiscard]] float* log_sum_exp() const { return reinterpret_cast<float*>(log_sum_exp_.data()); }

  void clear() {
    for (const DeviceBuffer* buffer : {&output_, &log_sum_exp_}) {
      cuda::check(cudaMemset(buffer->data(), kUnwritten, buffer->size()), "clearing an output");
    }
  }

  [[nodiscard]] std::vector<std::byte> output_bytes() const { return output_.download(); }
  [[nodiscard]] std::vector<std::byte> log_sum_exp_bytes() const { return log_sum_exp_.download(); }

  /// The bytes of output and log-sum-exp, for comparisons of bits.
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> all = output_bytes();
    const std::vector<std::byte> lse = log_sum_exp_bytes();
    all.insert(all.end(), lse.begin(), lse.end());
    return all;
  }

  [[nodiscard]] AttentionResult read() const {
    const std::vector<std::byte> bytes = output_.download();
    AttentionResult result;
    for_each_element([&](std::int64_t offset) {
      result.output.push_back(study::load_element(bytes.data(), view_.type, offset));
    });
    const std::vector<std::byte> lse = log_sum_exp_.download();
    result.log_sum_exp.resize(lse.size() / sizeof(float));
    std::memcpy(result.log_sum_exp.data(), lse.data(), lse.size());
    return result;
  }

  /// What was written beside the tensors or left unwritten in them; empty if nothing.
  [[nodiscard]] std::string fault(bool expects_log_sum_exp) const {
    if (!output_.guards_untouched()) return "guards of the output were overwritten";
    if (!log_sum_exp_.guards_untouched()) return "guards of the log-sum-exp were overwritten";
    std::vector<std::byte> bytes = output_.download();
    std::int64_t unwritten = 0;
    for_each_element([&](std::int64_t offset) {
      std::uint16_t bits = 0;
      std::byte* at = bytes.data() + offset * std::int64_t{sizeof(bits)};
      std::memcpy(&bits, at, sizeof(bits));
      unwritten += bits == 0xFFFF;
      std::memset(at, kUnwritten, sizeof(bits));
    });
    if (unwritten > 0) return std::to_string(unwritten) + " elements of the output left unwritten";
    for (const std::byte byte : bytes) {
      if (byte != std::byte{kUnwritten}) return "bytes between the rows of the output overwritten";
    }
    const std::vector<std::byte> lse = log_sum_exp_.download();
    for (std::size_t i = 0; i < lse.size(); i += sizeof(float)) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, lse.data() + i, sizeof(bits));
      if ((bits != 0xFFFF'FFFFu) != expects_log_sum_exp) {
        return expects_log_sum_exp ? "elements of the log-sum-exp left unwritten"
                                   : "a log-sum-exp that nobody asked for was written";
      }
    }
    return {};
  }

 private:
  static std::size_t reach(const schedule::Problem& p, const std::array<std::int64_t, 4>& strides,
                           std::int64_t shift) {
    return static_cast<std::size_t>(shift + (p.batch - 1) * strides[kBatch] +
                                    (p.queries - 1) * strides[kSequence] +
                                    (p.heads - 1) * strides[kHead] + p.head_dim);
  }

  template <class Visit>
  void for_each_element(const Visit& visit) const {
    const TensorView view = view_.view();
    for (std::int64_t b = 0; b < view.shape[kBatch]; ++b) {
      for (std::int64_t s = 0; s < view.shape[kSequence]; ++s) {
        for (std::int64_t h = 0; h < view.shape[kHead]; ++h) {
          const std::int64_t row = shift_ + view.offset(b, s, h);
          for (std::int64_t c = 0; c < view.shape[kChannel]; ++c) visit(row + c);
        }
      }
    }
  }

  std::int64_t shift_;
  DeviceBuffer output_;
  DeviceBuffer log_sum_exp_;
  MutableTensorView view_;
};

/// The CPU takes the number of keys from the problem: with a selection, the same in all sequences.
inline AttentionResult run_on_cpu(const HostPrepared& prepared, ElementType type) {
  schedule::PreparedView view = prepared.view();
  view.problem = schedule::problem_of_head(view.problem, view.bounds(), 0);
  const schedule::Problem& p = view.problem;
  study::OwnedTensor out(type, {p.batch, p.queries, p.heads, p.head_dim});
  AttentionResult result;
  result.log_sum_exp.resize(static_cast<std::size_t>(p.batch_heads() * p.queries));
  if (p.keys == 0) {
    result.output.resize(out.bytes.size() / element_size(type));
    std::ranges::fill(result.log_sum_exp, -std::numeric_limits<float>::infinity());
    return result;
  }
  cpu::attention_prepared(view, out.mutable_view(), result.log_sum_exp.data(),
                          *cpu::shared_pool(0));
  const auto elements = static_cast<std::int64_t>(out.bytes.size() / element_size(type));
  result.output.reserve(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) {
    result.output.push_back(study::load_element(out.bytes.data(), type, i));
  }
  return result;
}

/// Runs attention, which ends behind the kernel where V is on axes, and waits for it.
inline void run_on_device(const schedule::PreparedView& prepared, const DeviceOutput& out,
                          bool log_sum_exp = true, cudaStream_t stream = nullptr,
                          const AttentionKernel& kernel = kHopper) {
  kernel.launch(prepared, out.view(), log_sum_exp ? out.log_sum_exp() : nullptr, stream);
  cuda::output::leave_axes(prepared, out.view(), stream);
  cuda::check(cudaStreamSynchronize(stream), "running the attention kernel");
}

}  // namespace openvc::test
