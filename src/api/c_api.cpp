// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>

#include "api/c_convert.hpp"
#include "api/validate.hpp"
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
using openvc::api::CallOptions;
using openvc::api::refuse;
using openvc::api::require;
using openvc::api::to_bool;
using openvc::api::to_input;
using openvc::api::to_options;
using openvc::api::to_view;
using openvc::api::validate_no_selection;

static_assert(OPENVC_INVALID_VALUE == static_cast<int>(ErrorCode::invalid_value));
static_assert(OPENVC_INVALID_TYPE == static_cast<int>(ErrorCode::invalid_type));
static_assert(OPENVC_UNSUPPORTED == static_cast<int>(ErrorCode::unsupported));
static_assert(OPENVC_OUT_OF_MEMORY == static_cast<int>(ErrorCode::out_of_memory));
static_assert(OPENVC_DEVICE_FAILURE == static_cast<int>(ErrorCode::device_failure));

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

/// The result of `work`, or `otherwise` if it throws.
template <class Value, class Work>
Value value_or(Value otherwise, const Work& work) noexcept {
  Value value = otherwise;
  (void)guarded([&] { value = work(); });
  return value;
}

const openvc::Prepared& to_prepared(const openvc_prepared* prepared) {
  if (prepared == nullptr) {
    refuse("prepared: pointer is null; expected the result of openvc_prepare().");
  }
  return prepared->value;
}

void write_shape(const std::array<std::int64_t, 4>& source, std::int64_t* shape) {
  if (shape == nullptr) refuse("shape: pointer is null; expected room for 4 numbers.");
  std::ranges::copy(source, shape);
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
    const openvc_options defaults = openvc::api::default_options(size);
    std::memcpy(options, &defaults, size);
  });
}

openvc_status openvc_options_set_budget(openvc_options* options, int32_t budget) {
  return guarded([&] { openvc::api::set_budget(options, budget); });
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
    const CallOptions call = to_options(options);
    const openvc::Support support =
        openvc::is_supported(to_input("q", q), to_input("k", k), to_input("v", v), call.attention);
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
    const CallOptions call = to_options(options);
    require(validate_no_selection(call.attention));
    openvc::attention_prepared(to_prepared(prepared), to_view("out", out), log_sum_exp,
                               call.execution);
  });
}

openvc_status openvc_exact_attention(const openvc_tensor* q, const openvc_tensor* k,
                                     const openvc_tensor* v, const int64_t* rows, size_t row_count,
                                     double* out, double* log_sum_exp,
                                     const openvc_options* options) {
  return guarded([&] {
    if (rows == nullptr && row_count > 0) refuse("rows: pointer is null; expected row_count rows.");
    const CallOptions call = to_options(options);
    require(validate_no_selection(call.attention));
    openvc::exact_attention(to_input("q", q), to_input("k", k), to_input("v", v),
                            std::span<const std::int64_t>(rows, row_count), out, log_sum_exp,
                            call.attention.mask, call.attention.softmax_scale, call.execution);
  });
}

void openvc_prepared_destroy(openvc_prepared* prepared) { delete prepared; }

openvc_status openvc_prepared_query_shape(const openvc_prepared* prepared, int64_t shape[4]) {
  return guarded([&] { write_shape(to_prepared(prepared).query_shape(), shape); });
}

openvc_status openvc_prepared_key_shape(const openvc_prepared* prepared, int64_t shape[4]) {
  return guarded([&] { write_shape(to_prepared(prepared).key_shape(), shape); });
}

int32_t openvc_prepared_element_type(const openvc_prepared* prepared) {
  return value_or(-1,
                  [&] { return static_cast<std::int32_t>(to_prepared(prepared).element_type()); });
}

int32_t openvc_prepared_device(const openvc_prepared* prepared, int32_t* device_index) {
  return value_or(-1, [&] {
    const openvc::Device device = to_prepared(prepared).device();
    if (device_index != nullptr) *device_index = device.index;
    return static_cast<std::int32_t>(device.type);
  });
}

int64_t openvc_prepared_repair_rows(const openvc_prepared* prepared) {
  return value_or(std::int64_t{-1}, [&] { return to_prepared(prepared).repair_rows(); });
}

int openvc_prepared_has_log_sum_exp(const openvc_prepared* prepared) {
  return value_or(-1, [&] { return to_prepared(prepared).has_log_sum_exp() ? 1 : 0; });
}

size_t openvc_prepared_bytes(const openvc_prepared* prepared) {
  return value_or(std::size_t{0}, [&] { return to_prepared(prepared).bytes(); });
}

openvc_status openvc_prepared_plans(const openvc_prepared* prepared, openvc_head_plan* plans,
                                    size_t capacity, size_t* count) {
  return guarded([&] {
    const openvc::Prepared& source = to_prepared(prepared);
    if (plans == nullptr && capacity > 0) {
      refuse("plans: pointer is null with capacity " + std::to_string(capacity) +
             "; expected room for so many plans. Pass capacity 0 to ask for their number.");
    }
    const auto all = source.plans();
    if (count != nullptr) *count = all.size();
    for (size_t i = 0; i < std::min(capacity, all.size()); ++i) {
      const openvc::HeadPlan& plan = all[i];
      plans[i] = {plan.extra_steps, plan.rotated ? 1 : 0, plan.score_exponent,
                  plan.predicted_score_error};
    }
  });
}
