// SPDX-License-Identifier: BSD-3-Clause
#include "api/validate.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "api/describe.hpp"
#include "numerics/contract.hpp"
#include "schedule/limits.hpp"
#include "schedule/problem.hpp"

namespace openvc::api {
namespace {

constexpr const char* kLayout = "tensors are [batch, sequence, head, channel]";

std::string shape_of(const NamedTensor& argument) {
  return std::string(argument.name) + ": shape " + describe(argument.tensor.shape);
}

bool is_element_type(ElementType type) {
  return type == ElementType::bfloat16 || type == ElementType::float16 ||
         type == ElementType::float32;
}

bool is_device(Device device) {
  return device.type == DeviceType::cpu || (device.type == DeviceType::cuda && device.index >= 0);
}

bool same_device(Device a, Device b) {
  return a.type == b.type && (a.type == DeviceType::cpu || a.index == b.index);
}

/// Lowest and highest element offset that a tensor touches, empty if they leave 64 bits.
struct Span {
  std::int64_t lowest = 0;
  std::int64_t highest = 0;
};

std::optional<Span> span_of(const std::array<std::int64_t, 4>& shape,
                            const std::array<std::int64_t, 4>& strides, std::size_t element_bytes) {
  Span span;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] <= 1) continue;
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(shape[axis] - 1, strides[axis], &reach)) return {};
    std::int64_t& end = reach < 0 ? span.lowest : span.highest;
    if (__builtin_add_overflow(end, reach, &end)) return {};
  }
  const auto size = static_cast<std::int64_t>(element_bytes);
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(span.lowest, size, &bytes)) return {};
  if (__builtin_add_overflow(span.highest, std::int64_t{1}, &bytes)) return {};
  if (__builtin_mul_overflow(bytes, size, &bytes)) return {};
  return span;
}

std::optional<Span> span_of(const TensorView& tensor) {
  return span_of(tensor.shape, tensor.strides, element_size(tensor.type));
}

/// Addresses [first, end) that a valid tensor spans.
struct AddressRange {
  std::uintptr_t first = 0;
  std::uintptr_t end = 0;
  [[nodiscard]] bool overlaps(const AddressRange& other) const {
    return first < other.end && other.first < end;
  }
};

/// Bytes [lowest, end) from `data`.
AddressRange addresses_from(const void* data, std::int64_t lowest, std::int64_t end) {
  const auto base = reinterpret_cast<std::uintptr_t>(data);
  return {base + static_cast<std::uintptr_t>(lowest), base + static_cast<std::uintptr_t>(end)};
}

AddressRange addresses_of(const TensorView& tensor) {
  const Span span = span_of(tensor).value_or(Span{});
  const auto size = static_cast<std::int64_t>(element_size(tensor.type));
  return addresses_from(tensor.data, span.lowest * size, (span.highest + 1) * size);
}

/// What a call writes: `out`, and log_sum_exp unless it is null.
struct WrittenMemory {
  AddressRange out;
  AddressRange log_sum_exp;

  WrittenMemory(const MutableTensorView& out_tensor, const float* logs, std::int64_t values)
      : out(addresses_of(out_tensor.view())) {
    if (logs != nullptr) {
      log_sum_exp = addresses_from(logs, 0, values * std::int64_t{sizeof(*logs)});
    }
  }

  /// Nothing of it overlaps `read`, the memory of argument `name`.
  [[nodiscard]] MaybeRefusal validate_input(const AddressRange& read, const char* name) const {
    const bool by_out = read.overlaps(out);
    if (!by_out && !read.overlaps(log_sum_exp)) return {};
    return invalid_value(std::string(by_out ? "out" : "log_sum_exp") + ": memory overlaps " + name +
                         "; expected memory of its own, inputs are never modified. Allocate a new "
                         "tensor.");
  }
};

/// Whether two elements of a tensor may share an address: an axis does not step over everything
/// that the axes with smaller strides span.
bool may_collide(const TensorView& tensor) {
  std::array<std::size_t, 4> axes{0, 1, 2, 3};
  const auto pace = [&tensor](std::size_t axis) {
    const auto stride = static_cast<std::uint64_t>(tensor.strides[axis]);
    return tensor.strides[axis] < 0 ? std::uint64_t{0} - stride : stride;  // -2^63 has no negative
  };
  std::sort(axes.begin(), axes.end(),
            [&pace](std::size_t a, std::size_t b) { return pace(a) < pace(b); });
  std::uint64_t inner = 1;  // at most 2^64 - 1: span_of() accepts no more
  for (const std::size_t axis : axes) {
    if (tensor.shape[axis] <= 1) continue;
    if (pace(axis) < inner) return true;
    inner += static_cast<std::uint64_t>(tensor.shape[axis] - 1) * pace(axis);
  }
  return false;
}

MaybeRefusal validate_tokens(const NamedTensor& argument, const char* advice) {
  const std::int64_t tokens = argument.tensor.shape[kSequence];
  if (tokens <= schedule::kMaxTokens) return {};
  return unsupported(shape_of(argument) + " has " + std::to_string(tokens) +
                     " tokens; expected at most " + std::to_string(schedule::kMaxTokens) + " (" +
                     kLayout + "). " + advice);
}

MaybeRefusal validate_sizes(const TensorView& q, const TensorView& k) {
  if (MaybeRefusal refusal = validate_tokens({"q", q}, "Split the queries into several calls.")) {
    return refusal;
  }
  if (MaybeRefusal refusal = validate_tokens({"k", k}, "Use another attention function.")) {
    return refusal;
  }
  if (q.shape[kChannel] > schedule::kMaxExactChannels) {
    return unsupported(shape_of({"q", q}) + " has D = " + std::to_string(q.shape[kChannel]) +
                       "; expected D <= " + std::to_string(schedule::kMaxExactChannels) + " (" +
                       kLayout + "). Use another attention function.");
  }
  return validate_rows_of_all_heads(q.shape[kBatch], q.shape[kHead], q.shape[kSequence],
                                    k.shape[kSequence]);
}

MaybeRefusal validate_head_dim(const NamedTensor& argument) {
  const std::int64_t channels = argument.tensor.shape[kChannel];
  if (channels <= numerics::kHeadDim && channels % schedule::kHeadDimStep == 0) return {};
  const std::string advice =
      channels < numerics::kHeadDim
          ? "Pad the channels of q, k and v with zeros to a multiple of " +
                std::to_string(schedule::kHeadDimStep) +
                " and pass softmax_scale = 1/sqrt(D) of the unpadded D, or use another attention "
                "function for this layer."
          : "Use another attention function for this layer.";
  return unsupported(shape_of(argument) + " has D = " + std::to_string(channels) +
                     "; expected a multiple of " + std::to_string(schedule::kHeadDimStep) +
                     " up to " + std::to_string(numerics::kHeadDim) + " (" + kLayout + "). " +
                     advice);
}

}  // namespace

// The size of the whole problem: views with stride 0 describe tensors larger than any memory.
MaybeRefusal validate_rows_of_all_heads(std::int64_t batch, std::int64_t heads,
                                        std::int64_t queries, std::int64_t keys) {
  const schedule::Problem head{.queries = queries, .keys = keys};
  const std::int64_t padded_queries =
      numerics::ceil_div(head.queries, schedule::kMaxQueryTile) * schedule::kMaxQueryTile;
  const std::int64_t most = schedule::kMaxRows / (padded_queries + head.padded_keys());
  if (heads <= most && batch <= most / heads) return {};
  return unsupported("q, k: batch " + std::to_string(batch) + " and " + std::to_string(heads) +
                     " heads with " + std::to_string(head.queries) + " queries and " +
                     std::to_string(head.keys) +
                     " keys; expected batch * heads <= " + std::to_string(most) +
                     " for that many tokens. Split the call by batch or heads.");
}

void require(const MaybeRefusal& refusal) {
  if (refusal) throw Error(refusal->code, refusal->message);
}

MaybeRefusal validate_tensor(const NamedTensor& argument) {
  const TensorView& tensor = argument.tensor;
  const std::string name = argument.name;
  if (!is_element_type(tensor.type)) {
    return invalid_type(name + ": element type " + std::to_string(static_cast<int>(tensor.type)) +
                        " is unknown; expected bfloat16, float16 or float32. Convert the tensor.");
  }
  if (!is_device(tensor.device)) {
    return invalid_value(name + ": device type " +
                         std::to_string(static_cast<int>(tensor.device.type)) + ", index " +
                         std::to_string(tensor.device.index) +
                         " is unknown; expected the CPU or a CUDA device with index >= 0.");
  }
  for (const std::int64_t size : tensor.shape) {
    if (size >= 1) continue;
    return invalid_value(shape_of(argument) + " has an axis of size " + std::to_string(size) +
                         "; expected every axis >= 1 (" + kLayout +
                         "). Skip the call: without queries there is no output, without keys the "
                         "output is zero.");
  }
  if (tensor.shape[kChannel] > 1 && tensor.strides[kChannel] != 1) {
    return invalid_value(name + ": strides " + describe(tensor.strides) + " have channel stride " +
                         std::to_string(tensor.strides[kChannel]) + "; expected 1 (" + kLayout +
                         "). Make the tensor contiguous.");
  }
  if (!span_of(tensor)) {
    return invalid_value(shape_of(argument) + " with strides " + describe(tensor.strides) +
                         " spans more than 2^63 bytes; expected strides in elements, not bytes, of "
                         "memory that exists.");
  }
  return {};
}

MaybeRefusal validate_pointer(const NamedTensor& argument) {
  const std::string name = argument.name;
  if (argument.tensor.data == nullptr) {
    return invalid_value(name +
                         ": data pointer is null; expected the address of element "
                         "[0, 0, 0, 0]. Pass a tensor that owns memory.");
  }
  const auto size = element_size(argument.tensor.type);
  if (reinterpret_cast<std::uintptr_t>(argument.tensor.data) % size != 0) {
    return invalid_value(name + ": data pointer is not a multiple of the element size; expected " +
                         std::to_string(size) + "-byte alignment for " +
                         element_name(argument.tensor.type) +
                         ". Copy the tensor to aligned memory.");
  }
  return {};
}

MaybeRefusal validate_pointers(const TensorView& q, const TensorView& k, const TensorView& v) {
  const NamedTensor arguments[] = {{"q", q}, {"k", k}, {"v", v}};
  for (const NamedTensor& argument : arguments) {
    if (MaybeRefusal refusal = validate_pointer(argument)) return refusal;
  }
  return {};
}

MaybeRefusal validate_inputs(const TensorView& q, const TensorView& k, const TensorView& v,
                             bool any_head_dim) {
  const NamedTensor arguments[] = {{"q", q}, {"k", k}, {"v", v}};
  for (const NamedTensor& argument : arguments) {
    if (MaybeRefusal refusal = validate_tensor(argument)) return refusal;
  }
  if (q.type != k.type || q.type != v.type) {
    return invalid_type(std::string("q, k, v: element types ") + element_name(q.type) + ", " +
                        element_name(k.type) + ", " + element_name(v.type) +
                        " differ; expected one type for all three. Convert them to the type that "
                        "the output should have.");
  }
  if (!same_device(q.device, k.device) || !same_device(q.device, v.device)) {
    return invalid_value("q, k, v: devices " + describe(q.device) + ", " + describe(k.device) +
                         ", " + describe(v.device) +
                         " differ; expected one device for all three. Move them.");
  }
  if (!any_head_dim) {
    for (const NamedTensor& argument : arguments) {
      if (MaybeRefusal refusal = validate_head_dim(argument)) return refusal;
    }
  }
  if (k.shape != v.shape) {
    return invalid_value("v: shape " + describe(v.shape) + " differs from k's " +
                         describe(k.shape) + "; expected one shape for both (" + kLayout + ").");
  }
  if (q.shape[kBatch] != k.shape[kBatch]) {
    return invalid_value("k: shape " + describe(k.shape) + " has batch " +
                         std::to_string(k.shape[kBatch]) + "; expected q's, " +
                         std::to_string(q.shape[kBatch]) + " (" + kLayout +
                         "). Expand the batch axis; stride 0 is allowed.");
  }
  if (q.shape[kHead] % k.shape[kHead] != 0) {
    return invalid_value("k: shape " + describe(k.shape) + " has " +
                         std::to_string(k.shape[kHead]) + " heads and q has " +
                         std::to_string(q.shape[kHead]) +
                         "; expected a number that divides q's, of which as many as the quotient "
                         "share a head of k and v (" +
                         kLayout + "). Repeat or drop heads of k and v.");
  }
  if (q.shape[kChannel] != k.shape[kChannel]) {
    return invalid_value("k: shape " + describe(k.shape) + " has " +
                         std::to_string(k.shape[kChannel]) + " channels; expected q's, " +
                         std::to_string(q.shape[kChannel]) + " (" + kLayout + ").");
  }
  return validate_sizes(q, k);
}

MaybeRefusal validate_output(const MutableTensorView& out, const std::array<std::int64_t, 4>& shape,
                             ElementType type, Device device) {
  const TensorView view = out.view();
  const NamedTensor argument{"out", view};
  if (out.shape != shape) {
    return invalid_value(shape_of(argument) + "; expected q's shape " + describe(shape) + " (" +
                         kLayout + ").");
  }
  if (MaybeRefusal refusal = validate_tensor(argument)) return refusal;
  if (MaybeRefusal refusal = validate_pointer(argument)) return refusal;
  if (out.type != type) {
    return invalid_type(std::string("out: element type ") + element_name(out.type) + "; expected " +
                        element_name(type) + ", the type of q, k and v.");
  }
  if (!same_device(out.device, device)) {
    return invalid_value("out: device " + describe(out.device) + "; expected " + describe(device) +
                         ", the device of q, k and v.");
  }
  if (may_collide(view)) {
    return invalid_value("out: strides " + describe(out.strides) + " for shape " +
                         describe(out.shape) +
                         " let elements share addresses; expected one address per element. Do not "
                         "pass an expanded tensor.");
  }
  return {};
}

MaybeRefusal validate_no_overlap(const MutableTensorView& out, const float* log_sum_exp,
                                 std::int64_t log_sum_exp_values,
                                 std::span<const NamedTensor> inputs) {
  if (reinterpret_cast<std::uintptr_t>(log_sum_exp) % alignof(float) != 0) {
    return invalid_value("log_sum_exp: pointer is not a multiple of 4; expected aligned floats.");
  }
  const WrittenMemory written(out, log_sum_exp, log_sum_exp_values);
  if (written.out.overlaps(written.log_sum_exp)) {
    return invalid_value("log_sum_exp: memory overlaps out; expected memory of its own.");
  }
  for (const NamedTensor& input : inputs) {
    if (MaybeRefusal refusal = written.validate_input(addresses_of(input.tensor), input.name)) {
      return refusal;
    }
  }
  return {};
}

MaybeRefusal validate_selection_memory(const AttentionOptions& options, const TensorView& k,
                                       const MutableTensorView& out, const float* log_sum_exp,
                                       std::int64_t log_sum_exp_values) {
  const KeySelection& keys = options.keys;
  const WrittenMemory written(out, log_sum_exp, log_sum_exp_values);
  const std::int64_t batch = k.shape[kBatch];
  const auto validate_integers = [&](const std::int32_t* integers, std::int64_t count,
                                     const char* name) -> MaybeRefusal {
    if (integers == nullptr) return {};
    const std::int64_t bytes = count * std::int64_t{sizeof(*integers)};
    return written.validate_input(addresses_from(integers, 0, bytes), name);
  };
  const PackedSequences& sequences = options.sequences;
  for (const auto& [integers, count, name] :
       {std::tuple{keys.lengths, batch, "key_lengths"},
        std::tuple{sequences.cu_seqlens_q, sequences.count + 1, "cu_seqlens_q"},
        std::tuple{sequences.cu_seqlens_k, sequences.count + 1, "cu_seqlens_k"}}) {
    if (MaybeRefusal refusal = validate_integers(integers, count, name)) return refusal;
  }
  if (keys.mask == nullptr) return {};
  const std::optional<Span> span =
      span_of({batch, k.shape[kSequence], 1, 1},
              {keys.mask_batch_stride, keys.mask_key_stride, 0, 0}, sizeof(*keys.mask));
  if (!span) {
    return invalid_value("key_mask: strides of " + std::to_string(keys.mask_batch_stride) +
                         " bytes a sequence and " + std::to_string(keys.mask_key_stride) +
                         " a key span more than 2^63 bytes; expected strides of memory that "
                         "exists.");
  }
  const AddressRange mask = addresses_from(keys.mask, span->lowest, span->highest + 1);
  return written.validate_input(mask, "key_mask");
}

}  // namespace openvc::api
