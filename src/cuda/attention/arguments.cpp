// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/attention/arguments.hpp"

#include <cstddef>
#include <cstdint>

#include "cuda/host/tensor_map.hpp"

namespace openvc::cuda {
namespace {

bool is_vectorised(const MutableTensorView& out) {
  constexpr std::int64_t kVectorElements = 8;  // 16 bytes
  const auto aligned = [&](int axis) {
    return out.shape[axis] <= 1 || out.strides[axis] % kVectorElements == 0;
  };
  return reinterpret_cast<std::uintptr_t>(out.data) % 16 == 0 && aligned(kBatch) &&
         aligned(kSequence) && aligned(kHead);
}

}  // namespace

Parameters make_parameters(const Arguments& arguments) {
  const auto& [inputs, out, log_sum_exp] = arguments;
  const schedule::PreparedLayout& layout = inputs.layout;
  Parameters p{};
  const auto* data = inputs.data;
  p.problem = inputs.problem;
  p.bounds = inputs.bounds();
  p.head_rules = reinterpret_cast<const numerics::HeadRule*>(data + layout.head_rules);
  p.value_scales = reinterpret_cast<const float*>(data + layout.value_scales);
  p.value_means = reinterpret_cast<const float*>(data + layout.value_means);
  p.smoothing_shifts = inputs.with_log_sum_exp
                           ? reinterpret_cast<const float*>(data + layout.smoothing_shifts)
                           : nullptr;
  p.log_sum_exp = log_sum_exp;
  p.output = out.data;
  p.output_rows = out.shape[kSequence];
  p.log_sum_exp_batch_stride = out.shape[kBatch] > 1 ? out.shape[kHead] * p.output_rows : 0;
  p.output_batch_stride = out.shape[kBatch] > 1 ? out.strides[kBatch] : 0;
  p.output_row_stride = out.shape[kSequence] > 1 ? out.strides[kSequence] : 0;
  p.output_head_stride = out.shape[kHead] > 1 ? out.strides[kHead] : 0;
  p.output_type = out.type == ElementType::float16 ? OutputType::float16 : OutputType::bfloat16;
  p.output_vectorised = is_vectorised(out);
  p.prepared = data;
  p.layout = layout;
  return p;
}

Parameters make_parameters(const Arguments& arguments, const TileShape& shape) {
  const schedule::PreparedView& inputs = arguments.inputs;
  const schedule::Problem& problem = inputs.problem;
  const schedule::PreparedLayout& layout = inputs.layout;
  const auto heads = static_cast<std::uint64_t>(problem.batch_heads());
  const auto query_rows = static_cast<std::uint64_t>(layout.query_rows);
  const auto key_rows = static_cast<std::uint64_t>(problem.padded_keys());
  constexpr std::uint64_t kRowBytes = numerics::kHeadDim;
  constexpr std::uint32_t kKeys = numerics::kKeyBlock;
  const auto query_box = static_cast<std::uint32_t>(shape.query_rows);
  const auto value_rows = static_cast<std::uint32_t>(shape.value_rows);

  const auto rows_of = [&](std::size_t section, std::uint64_t rows, std::uint64_t planes,
                           std::uint32_t width, std::uint32_t box_rows) {
    return ByteTensor{.data = inputs.data + section,
                      .shape = {width, rows, planes},
                      .row_bytes = width,
                      .plane_bytes = rows * width,
                      .box = {width, box_rows}};
  };
  Parameters p = make_parameters(arguments);
  p.query_map = encode_tensor_map(
      rows_of(layout.query_codes, query_rows, heads, kRowBytes, query_box), TileSwizzle::bytes_128);
  p.key_map = encode_tensor_map(rows_of(layout.key_codes, key_rows, heads, kRowBytes, kKeys),
                                TileSwizzle::bytes_128);
  p.value_map = encode_tensor_map(
      rows_of(layout.value_codes, key_rows / kKeys * value_rows, heads, kKeys, value_rows),
      TileSwizzle::bytes_128);
  if (inputs.max_extra_steps > 0) {
    const std::uint64_t planes = heads * static_cast<std::uint64_t>(inputs.max_extra_steps);
    p.query_columns_map =
        encode_tensor_map(rows_of(layout.query_columns, query_rows, planes, kStepBytes, query_box),
                          TileSwizzle::bytes_32);
    p.key_columns_map = encode_tensor_map(
        rows_of(layout.key_columns, key_rows, planes, kStepBytes, kKeys), TileSwizzle::bytes_32);
  }
  return p;
}

}  // namespace openvc::cuda
