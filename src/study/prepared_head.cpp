// SPDX-License-Identifier: BSD-3-Clause
#include "study/prepared_head.hpp"

#include <cstring>
#include <new>

#include "cpu/attention.hpp"
#include "cpu/prepare.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/half.hpp"

namespace openvc::study {
namespace {

using numerics::kColumnsPerStep;
using numerics::kHeadDim;

void decode_bytes(const std::byte* source, std::int64_t count, float* target) {
  for (std::int64_t i = 0; i < count; ++i) {
    target[i] = numerics::kE4m3Values[std::to_integer<std::size_t>(source[i])];
  }
}

}  // namespace

void PreparedHead::AlignedDelete::operator()(std::byte* block) const noexcept {
  ::operator delete (block, std::align_val_t{schedule::kSectionAlignment});
}

PreparedHead::PreparedHead(const HeadInputs& inputs, const NumericOptions& numerics,
                           std::int64_t repair_rows, cpu::ThreadPool& pool) {
  const schedule::PrepareRequest request{.q = inputs.q,
                                         .k = inputs.k,
                                         .v = inputs.v,
                                         .problem = {.batch = 1,
                                                     .heads = 1,
                                                     .queries = inputs.q.shape[kSequence],
                                                     .keys = inputs.k.shape[kSequence],
                                                     .repair_rows = repair_rows,
                                                     .mask = inputs.mask,
                                                     .key_order = inputs.key_order},
                                         .softmax_scale = inputs.softmax_scale,
                                         .numerics = numerics,
                                         .with_log_sum_exp = false,
                                         .format = cpu::kPackedFormat};
  block_.reset(static_cast<std::byte*>(::operator new (
      schedule::prepared_layout(request).bytes, std::align_val_t{schedule::kSectionAlignment})));
  view_ = schedule::prepared_view(request, block_.get());
  plan_ = numerics::summary(cpu::prepare(request, block_.get(), pool).front());
}

numerics::HeadRule PreparedHead::rule() const noexcept {
  numerics::HeadRule rule;
  std::memcpy(&rule, view_.data + view_.layout.head_rules, sizeof(rule));
  return rule;
}

std::int64_t PreparedHead::columns() const noexcept {
  return kHeadDim + std::int64_t{rule().extra_steps} * kColumnsPerStep;
}

void PreparedHead::decode_key_rows(std::int64_t first, std::int64_t count, std::vector<float>& keys,
                                   std::vector<float>& values) const {
  const std::int64_t width = columns();
  const schedule::PreparedLayout& layout = view_.layout;
  const int steps = rule().extra_steps;
  keys.resize(static_cast<std::size_t>(count * width));
  values.resize(static_cast<std::size_t>(count * kHeadDim));
  for (std::int64_t i = 0; i < count; ++i) {
    float* key = keys.data() + i * width;
    decode_bytes(view_.data + layout.key_at(0, first + i), kHeadDim, key);
    for (int step = 0; step < steps; ++step) {
      decode_bytes(view_.data + layout.key_columns_at(step, 0, first + i), kColumnsPerStep,
                   key + kHeadDim + step * kColumnsPerStep);
    }
    for (int c = 0; c < kHeadDim; ++c) {
      decode_bytes(view_.data + layout.value_code_at(0, c, first + i), 1,
                   values.data() + i * kHeadDim + c);
    }
    for (int c = 0; c < numerics::kValueColumns; ++c) {
      float residual = 0.0f;
      decode_bytes(view_.data + layout.value_code_at(0, kHeadDim + c, first + i), 1, &residual);
      values[static_cast<std::size_t>(i * kHeadDim + c)] += residual;
    }
  }
}

DecodedHead PreparedHead::decode(std::span<const std::int64_t> rows) const {
  const numerics::HeadRule head_rule = rule();
  DecodedHead head;
  head.rule = head_rule;
  head.columns = columns();
  head.queries.resize(rows.size() * static_cast<std::size_t>(head.columns));
  float* query = head.queries.data();
  for (const std::int64_t row : rows) {
    decode_bytes(view_.data + view_.layout.query_at(0, row), kHeadDim, query);
    for (int step = 0; step < head_rule.extra_steps; ++step) {
      decode_bytes(view_.data + view_.layout.query_columns_at(step, 0, row), kColumnsPerStep,
                   query + kHeadDim + step * kColumnsPerStep);
    }
    query += head.columns;
  }
  decode_key_rows(0, view_.problem.keys, head.keys, head.values);
  std::memcpy(head.value_scales.data(), view_.data + view_.layout.value_scales,
              sizeof(head.value_scales));
  std::memcpy(head.value_means.data(), view_.data + view_.layout.value_means,
              sizeof(head.value_means));
  if (head_rule.values_on_axes()) head.value_basis = decode_basis();
  head.repair = decode_repair();
  return head;
}

std::vector<float> PreparedHead::decode_basis() const {
  constexpr std::size_t kDim = kHeadDim;
  constexpr std::size_t kColumns = kDim + numerics::kValueAxes;
  std::vector<std::uint16_t> packed(kDim * kColumns);
  std::memcpy(packed.data(), view_.data + view_.layout.value_basis_at(0),
              packed.size() * sizeof(packed[0]));
  std::vector<float> basis(kDim * kDim);
  for (std::size_t axis = 0; axis < kDim; ++axis) {
    for (std::size_t c = 0; c < kDim; ++c) {
      float& x = basis[axis * kDim + c];
      x = numerics::bfloat16_to_float(packed[c * kColumns + axis]);
      if (axis >= numerics::kValueAxes) continue;
      x += numerics::bfloat16_to_float(packed[c * kColumns + kDim + axis]);
    }
  }
  return basis;
}

RepairRows PreparedHead::decode_repair() const {
  RepairRows repair;
  repair.count = view_.problem.repair_rows;
  decode_key_rows(view_.problem.key_blocks() * numerics::kKeyBlock, repair.count, repair.keys,
                  repair.values);
  return repair;
}

std::vector<float> PreparedHead::run_backend(cpu::ThreadPool& pool) const {
  const std::array<std::int64_t, 4> shape = {1, view_.problem.queries, 1, kHeadDim};
  std::vector<float> out(static_cast<std::size_t>(view_.problem.queries * kHeadDim));
  cpu::attention_prepared(view_,
                          {.data = out.data(),
                           .type = ElementType::float32,
                           .device = {},
                           .shape = shape,
                           .strides = contiguous_strides(shape)},
                          nullptr, pool);
  return out;
}

}  // namespace openvc::study
