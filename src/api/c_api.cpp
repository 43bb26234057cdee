// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>

#include "openvc/attention.hpp"
#include "openvc/info.hpp"
#include "openvc/openvc.h"
#include "openvc/version.hpp"

// The C interface: conversions to and from the C++ one, and a wall that no exception passes.

struct openvc_prepared {
  openvc::Prepared value;
};

namespace {

using openvc::Error;
using openvc::ErrorCode;

static_assert(OPENVC_INVALID_VALUE == static_cast<int>(ErrorCode::invalid_value));
static_assert(OPENVC_INVALID_TYPE == static_cast<int>(ErrorCode::invalid_type));
static_assert(OPENVC_UNSUPPORTED == static_cast<int>(ErrorCode::unsupported));
static_assert(OPENVC_OUT_OF_MEMORY == static_cast<int>(ErrorCode::out_of_memory));
static_assert(OPENVC_DEVICE_FAILURE == static_cast<int>(ErrorCode::device_failure));
static_assert(OPENVC_FLOAT32 == static_cast<int>(openvc::ElementType::float32));
static_assert(OPENVC_CUDA == static_cast<int>(openvc::DeviceType::cuda));
static_assert(OPENVC_MASK_CAUSAL == static_cast<int>(openvc::Mask::causal));
static_assert(OPENVC_KEY_ORDER_DESCENDING == static_cast<int>(openvc::KeyOrder::descending));
static_assert(OPENVC_ALWAYS == static_cast<int>(openvc::Choice::always));
static_assert(OPENVC_VALUE_SCALE_PER_HEAD == static_cast<int>(openvc::ValueScale::per_head));
static_assert(sizeof(openvc_tensor) == 88 && sizeof(openvc_options) == 64,
              "the layout of the structures is part of the binary interface");

thread_local std::string last_error;

openvc_status fail(openvc_status status, const char* message) noexcept {
  try {
    last_error = message;
  } catch (...) {
    last_error.clear();  // no memory even for the message
  }
  return status;
}

/// Runs `work` and turns what it throws into a status and a message.
template <class Work>
openvc_status guarded(const Work& work) noexcept {
  try {
    work();
    return OPENVC_OK;
  } catch (const Error& error) {
    return fail(static_cast<openvc_status>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(OPENVC_OUT_OF_MEMORY, "an allocation failed");
  } catch (const std::exception& error) {
    return fail(OPENVC_INTERNAL_ERROR, error.what());
  } catch (...) {
    return fail(OPENVC_INTERNAL_ERROR, "unknown exception");
  }
}

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_value, message);
}

/// An enumeration of the C++ interface. Values outside its underlying type must not wrap into it;
/// those inside are judged by the validation of the call.
template <class Enum>
Enum to_enum(const char* name, std::int32_t value) {
  if (value < 0 || value > 0xFF) {
    refuse(std::string(name) + ": " + std::to_string(value) +
           " is unknown; expected a value of the enumeration in openvc.h.");
  }
  return static_cast<Enum>(value);
}

bool to_bool(const char* name, std::int32_t value) {
  if (value != 0 && value != 1) {
    refuse(std::string(name) + ": " + std::to_string(value) + "; expected 0 or 1.");
  }
  return value == 1;
}

openvc::MutableTensorView to_view(const char* name, const openvc_tensor* tensor) {
  if (tensor == nullptr) {
    refuse(std::string(name) + ": pointer to the tensor is null; expected an openvc_tensor.");
  }
  openvc::MutableTensorView view;
  view.data = tensor->data;
  view.type = to_enum<openvc::ElementType>("element_type", tensor->element_type);
  view.device = {to_enum<openvc::DeviceType>("device_type", tensor->device_type),
                 tensor->device_index};
  std::copy_n(tensor->shape, 4, view.shape.begin());
  std::copy_n(tensor->strides, 4, view.strides.begin());
  return view;
}

openvc::TensorView to_input(const char* name, const openvc_tensor* tensor) {
  return to_view(name, tensor).view();
}

openvc_options default_options() {
  const openvc::AttentionOptions options;
  const openvc::NumericOptions& numerics = options.numerics;
  openvc_options result{};
  result.size = sizeof(openvc_options);
  result.mask = static_cast<std::int32_t>(options.mask);
  result.key_order = static_cast<std::int32_t>(options.key_order);
  result.smooth_keys = numerics.smooth_keys ? 1 : 0;
  result.rotation = static_cast<std::int32_t>(numerics.rotation);
  result.max_extra_steps = numerics.max_extra_steps;
  result.score_error_target = numerics.score_error_target;
  result.tail_correction = static_cast<std::int32_t>(numerics.tail_correction);
  result.centre_values = numerics.centre_values ? 1 : 0;
  result.value_scale = static_cast<std::int32_t>(numerics.value_scale);
  return result;
}

/// The caller's options, completed by the defaults of fields that the caller does not know.
openvc_options known_options(const openvc_options* options) {
  openvc_options result = default_options();
  if (options == nullptr) return result;
  if (options->size < sizeof(options->size)) {
    refuse("options: size " + std::to_string(options->size) +
           "; expected sizeof(openvc_options). Call openvc_options_default() first.");
  }
  if (options->size > sizeof(result)) {
    refuse("options: size " + std::to_string(options->size) +
           " is that of a newer openvc.h; "
           "expected at most " +
           std::to_string(sizeof(result)) +
           ". Use the header of this "
           "library, version " +
           openvc::kVersion + ".");
  }
  std::memcpy(&result, options, options->size);
  return result;
}

struct CallOptions {
  openvc::AttentionOptions attention;
  openvc::Execution execution;
};

CallOptions to_options(const openvc_options* options) {
  const openvc_options known = known_options(options);
  CallOptions result;
  openvc::AttentionOptions& attention = result.attention;
  attention.mask = to_enum<openvc::Mask>("mask", known.mask);
  attention.key_order = to_enum<openvc::KeyOrder>("key_order", known.key_order);
  if (known.softmax_scale != 0.0f) attention.softmax_scale = known.softmax_scale;
  openvc::NumericOptions& numerics = attention.numerics;
  numerics.smooth_keys = to_bool("smooth_keys", known.smooth_keys);
  numerics.rotation = to_enum<openvc::Choice>("rotation", known.rotation);
  numerics.max_extra_steps = known.max_extra_steps;
  numerics.score_error_target = known.score_error_target;
  numerics.tail_correction = to_enum<openvc::Choice>("tail_correction", known.tail_correction);
  numerics.centre_values = to_bool("centre_values", known.centre_values);
  numerics.value_scale = to_enum<openvc::ValueScale>("value_scale", known.value_scale);
  result.execution.threads = known.threads;
  result.execution.stream = known.stream;
  return result;
}

const openvc::Prepared& to_prepared(const openvc_prepared* prepared) {
  if (prepared == nullptr) {
    refuse("prepared: pointer is null; expected the result of openvc_prepare().");
  }
  return prepared->value;
}

}  // namespace

const char* openvc_version(void) { return openvc::kVersion; }

const char* openvc_last_error_message(void) { return last_error.c_str(); }

size_t openvc_info_json(char* buffer, size_t capacity) {
  size_t needed = 0;
  (void)guarded([&] {
    const std::string json = openvc::info_json();
    needed = json.size() + 1;
    if (buffer != nullptr && needed <= capacity) std::memcpy(buffer, json.c_str(), needed);
  });
  return needed;
}

openvc_status openvc_options_default(openvc_options* options, size_t size) {
  return guarded([&] {
    if (options == nullptr) refuse("options: pointer is null; expected an openvc_options.");
    openvc_options defaults = default_options();
    if (size < sizeof(defaults.size) || size > sizeof(defaults)) {
      refuse("size: " + std::to_string(size) + "; expected sizeof(openvc_options), at most " +
             std::to_string(sizeof(defaults)) + " in this version.");
    }
    defaults.size = size;
    std::memcpy(options, &defaults, size);
  });
}

openvc_status openvc_attention(const openvc_tensor* q, const openvc_tensor* k,
                               const openvc_tensor* v, const openvc_tensor* out, float* log_sum_exp,
                               const openvc_options* options) {
  return guarded([&] {
    const CallOptions call = to_options(options);
    openvc::attention(to_input("q", q), to_input("k", k), to_input("v", v), to_view("out", out),
                      log_sum_exp, call.attention, call.execution);
  });
}

openvc_status openvc_is_supported(const openvc_tensor* q, const openvc_tensor* k,
                                  const openvc_tensor* v, const openvc_options* options) {
  return guarded([&] {
    const openvc::Support support = openvc::is_supported(
        to_input("q", q), to_input("k", k), to_input("v", v), to_options(options).attention);
    if (!support) throw Error(ErrorCode::unsupported, support.reason);
  });
}

openvc_status openvc_prepare(const openvc_tensor* q, const openvc_tensor* k, const openvc_tensor* v,
                             int with_log_sum_exp, const openvc_options* options,
                             openvc_prepared** prepared) {
  return openvc_prepare_repair(q, k, v, 0.0, with_log_sum_exp, options, prepared);
}

openvc_status openvc_prepare_repair(const openvc_tensor* q, const openvc_tensor* k,
                                    const openvc_tensor* v, double budget, int with_log_sum_exp,
                                    const openvc_options* options, openvc_prepared** prepared) {
  return guarded([&] {
    if (prepared == nullptr) {
      refuse("prepared: pointer is null; expected where to store the result.");
    }
    *prepared = nullptr;
    const CallOptions call = to_options(options);
    *prepared = new openvc_prepared{openvc::prepare_repair(
        to_input("q", q), to_input("k", k), to_input("v", v), budget, call.attention,
        to_bool("with_log_sum_exp", with_log_sum_exp), call.execution)};
  });
}

openvc_status openvc_attention_prepared(const openvc_prepared* prepared, const openvc_tensor* out,
                                        float* log_sum_exp, const openvc_options* options) {
  return guarded([&] {
    openvc::attention_prepared(to_prepared(prepared), to_view("out", out), log_sum_exp,
                               to_options(options).execution);
  });
}

openvc_status openvc_exact_attention(const openvc_tensor* q, const openvc_tensor* k,
                                     const openvc_tensor* v, const int64_t* rows, size_t row_count,
                                     double* out, double* log_sum_exp,
                                     const openvc_options* options) {
  return guarded([&] {
    if (rows == nullptr && row_count > 0) refuse("rows: pointer is null; expected row_count rows.");
    const CallOptions call = to_options(options);
    openvc::exact_attention(to_input("q", q), to_input("k", k), to_input("v", v),
                            std::span<const std::int64_t>(rows, row_count), out, log_sum_exp,
                            call.attention.mask, call.attention.softmax_scale, call.execution);
  });
}

void openvc_prepared_destroy(openvc_prepared* prepared) { delete prepared; }

void openvc_prepared_query_shape(const openvc_prepared* prepared, int64_t shape[4]) {
  const auto source = prepared->value.query_shape();
  std::copy(source.begin(), source.end(), shape);
}

void openvc_prepared_key_shape(const openvc_prepared* prepared, int64_t shape[4]) {
  const auto source = prepared->value.key_shape();
  std::copy(source.begin(), source.end(), shape);
}

openvc_element_type openvc_prepared_element_type(const openvc_prepared* prepared) {
  return static_cast<openvc_element_type>(prepared->value.element_type());
}

openvc_device_type openvc_prepared_device(const openvc_prepared* prepared, int32_t* device_index) {
  const openvc::Device device = prepared->value.device();
  if (device_index != nullptr) *device_index = device.index;
  return static_cast<openvc_device_type>(device.type);
}

int64_t openvc_prepared_repair_rows(const openvc_prepared* prepared) {
  return prepared->value.repair_rows();
}

int openvc_prepared_has_log_sum_exp(const openvc_prepared* prepared) {
  return prepared->value.has_log_sum_exp() ? 1 : 0;
}

size_t openvc_prepared_bytes(const openvc_prepared* prepared) { return prepared->value.bytes(); }

openvc_status openvc_prepared_plans(const openvc_prepared* prepared, openvc_head_plan* plans,
                                    size_t capacity, size_t* count) {
  return guarded([&] {
    const auto all = to_prepared(prepared).plans();
    if (count != nullptr) *count = all.size();
    if (plans == nullptr) return;
    for (size_t i = 0; i < std::min(capacity, all.size()); ++i) {
      const openvc::HeadPlan& plan = all[i];
      plans[i] = {plan.extra_steps,    plan.rotated ? 1 : 0,       plan.tail_correction ? 1 : 0,
                  plan.score_exponent, plan.predicted_score_error, plan.predicted_flush};
    }
  });
}
