// SPDX-License-Identifier: BSD-3-Clause
#include "api/c_convert.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "api/c_fields.hpp"
#include "api/validate.hpp"
#include "openvc/budget.hpp"
#include "openvc/status.hpp"
#include "openvc/version.hpp"

namespace openvc::api {
namespace {

static_assert(OPENVC_FLOAT32 == static_cast<int>(ElementType::float32));
static_assert(OPENVC_CUDA == static_cast<int>(DeviceType::cuda));
static_assert(OPENVC_MASK_CAUSAL == static_cast<int>(Mask::causal) &&
              names_of(Mask{}).size() == OPENVC_MASK_CAUSAL + 1);
static_assert(OPENVC_KEY_ORDER_DESCENDING == static_cast<int>(KeyOrder::descending) &&
              names_of(KeyOrder{}).size() == OPENVC_KEY_ORDER_DESCENDING + 1);
static_assert(OPENVC_ALWAYS == static_cast<int>(Choice::always) &&
              names_of(Choice{}).size() == OPENVC_ALWAYS + 1);
static_assert(OPENVC_BUDGET_BEST == static_cast<int>(Budget::best) &&
              names_of(Budget{}).size() == OPENVC_BUDGET_BEST + 1);
static_assert(OPENVC_VALUE_SCALE_PER_HEAD == static_cast<int>(ValueScale::per_head) &&
              names_of(ValueScale{}).size() == OPENVC_VALUE_SCALE_PER_HEAD + 1);
static_assert(sizeof(openvc_tensor) == 88 && sizeof(openvc_options) == 136 &&
                  sizeof(openvc_head_plan) == 16,
              "the layout of the structures is part of the binary interface");

/// An enumeration of the C++ interface. Values outside its underlying type must not wrap into it;
/// those inside are judged by the validation of the call.
template <class Enum>
Enum to_enum(const std::string& name, std::int32_t value) {
  if (value < 0 || value > 0xFF) {
    refuse(name + ": " + std::to_string(value) +
           " is unknown; expected a value of the enumeration in openvc.h.");
  }
  return static_cast<Enum>(value);
}

/// A field without a meaning yet, so that a later version can give it one.
void require_unused(const std::string& name, std::int32_t value) {
  if (value == 0) return;
  refuse(name + ": " + std::to_string(value) + "; expected 0, it has no meaning in version " +
         kVersion + ". Set it to 0.");
}

/// What C holds as one of the types of options.
template <class Value, class Native>
Value from_c(const char* name, Native value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return to_bool(name, value);
  } else if constexpr (std::is_enum_v<Value>) {
    return to_enum<Value>(name, value);
  } else {
    static_assert(std::is_same_v<Value, Native>);
    return value;
  }
}

openvc_options all_defaults() {
  const AttentionOptions options;
  openvc_options result{};
  result.size = sizeof(openvc_options);
  result.mask = static_cast<std::int32_t>(options.mask);
  result.key_order = static_cast<std::int32_t>(options.key_order);
  result.key_mask_batch_stride = options.keys.mask_batch_stride;
  result.key_mask_key_stride = options.keys.mask_key_stride;
  for_each_numeric_field([&]<class Native>(const auto& option, Native openvc_options::*field) {
    result.*field = static_cast<Native>(option.default_value());
  });
  return result;
}

/// Whether a caller's structure of that size has whole fields: all but the first have four bytes,
/// or eight from the stream on.
constexpr bool ends_with_a_field(std::size_t size) {
  constexpr std::size_t kWideFields = offsetof(openvc_options, stream);
  static_assert(sizeof(openvc_options::stream) == 8 && kWideFields % 8 == 0);
  const std::size_t unit = size > kWideFields ? sizeof(std::int64_t) : sizeof(std::int32_t);
  return size >= sizeof(openvc_options::size) && size % unit == 0;
}

void require_known_size(const char* name, std::size_t size) {
  if (size > sizeof(openvc_options)) {
    refuse(std::string(name) + ": " + std::to_string(size) +
           " is that of a newer openvc.h; expected at most " +
           std::to_string(sizeof(openvc_options)) + ". Use the header of this library, version " +
           kVersion + ".");
  }
  if (!ends_with_a_field(size)) {
    refuse(std::string(name) + ": " + std::to_string(size) +
           " does not end with a field; expected sizeof(openvc_options), " +
           std::to_string(sizeof(openvc_options)) +
           " in this version. Call openvc_options_default() first.");
  }
}

/// The caller's options, completed by the defaults of fields that the caller does not know.
openvc_options known_options(const openvc_options* options) {
  openvc_options result = all_defaults();
  if (options == nullptr) return result;
  require_known_size("options.size", options->size);
  std::memcpy(&result, options, options->size);
  return result;
}

}  // namespace

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_value, message);
}

bool to_bool(const char* name, std::int32_t value) {
  if (value != 0 && value != 1) {
    refuse(std::string(name) + ": " + std::to_string(value) + "; expected 0 or 1.");
  }
  return value == 1;
}

MutableTensorView to_view(const std::string& name, const openvc_tensor* tensor) {
  if (tensor == nullptr) {
    refuse(name + ": pointer to the tensor is null; expected an openvc_tensor.");
  }
  require_unused(name + ".reserved", tensor->reserved);
  MutableTensorView view;
  view.data = tensor->data;
  view.type = to_enum<ElementType>(name + ".element_type", tensor->element_type);
  view.device = {to_enum<DeviceType>(name + ".device_type", tensor->device_type),
                 tensor->device_index};
  std::copy_n(tensor->shape, 4, view.shape.begin());
  std::copy_n(tensor->strides, 4, view.strides.begin());
  return view;
}

openvc_options default_options(std::size_t size) {
  require_known_size("size", size);
  openvc_options result = all_defaults();
  result.size = size;
  return result;
}

void set_budget(openvc_options* options, std::int32_t budget) {
  if (options == nullptr) refuse("options: pointer is null; expected an openvc_options.");
  const auto chosen = to_enum<Budget>("budget", budget);
  if (!is_enumerator(chosen)) {
    refuse("budget: " + std::to_string(budget) + "; expected 0 (fast), 1 (balanced) or 2 (best).");
  }
  const NumericOptions numerics = numeric_options(chosen);
  require_known_size("options.size", options->size);
  for_each_numeric_field([&]<class Native>(const auto& option, Native openvc_options::*field) {
    const auto end = reinterpret_cast<const char*>(&(options->*field) + 1);
    if (end > reinterpret_cast<const char*>(options) + options->size) {
      refuse("options.size: " + std::to_string(options->size) + " leaves out " + option.name +
             "; expected all numeric options. Pass sizeof(openvc_options) to "
             "openvc_options_default().");
    }
  });
  for_each_numeric_field([&]<class Native>(const auto& option, Native openvc_options::*field) {
    options->*field = static_cast<Native>(numerics.*option.field);
  });
}

CallOptions to_options(const openvc_options* options) {
  const openvc_options known = known_options(options);
  CallOptions result;
  AttentionOptions& attention = result.attention;
  attention.mask = to_enum<Mask>("mask", known.mask);
  attention.key_order = to_enum<KeyOrder>("key_order", known.key_order);
  attention.keys = {.lengths = known.key_lengths,
                    .mask = known.key_mask,
                    .mask_batch_stride = known.key_mask_batch_stride,
                    .mask_key_stride = known.key_mask_key_stride};
  attention.sequences = {.count = known.sequences,
                         .cu_seqlens_q = known.cu_seqlens_q,
                         .cu_seqlens_k = known.cu_seqlens_k,
                         .max_seqlen_q = known.max_seqlen_q,
                         .max_seqlen_k = known.max_seqlen_k};
  if (known.softmax_scale != 0.0f) attention.softmax_scale = known.softmax_scale;
  for_each_numeric_field([&](const auto& option, auto field) {
    using Value = decltype(option.default_value());
    attention.numerics.*option.field = from_c<Value>(option.name, known.*field);
  });
  require_unused("options.reserved", known.reserved);
  result.execution.threads = known.threads;
  result.execution.stream = known.stream;
  require(validate_options(attention));
  require(validate_execution(result.execution));
  return result;
}

}  // namespace openvc::api
