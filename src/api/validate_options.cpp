// SPDX-License-Identifier: BSD-3-Clause
//
// What a call asks for, apart from its tensors.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "api/validate.hpp"
#include "numerics/plan_scores.hpp"
#include "numerics/score_scale.hpp"
#include "openvc/option_text.hpp"

namespace openvc::api {

static_assert(numerics::query_gain(kLargestSoftmaxScale) <= std::numeric_limits<float>::max());
static_assert(numerics::query_gain(kSmallestSoftmaxScale) >= std::numeric_limits<float>::min());

MaybeRefusal validate_softmax_scale(std::optional<float> scale) {
  if (!scale || is_softmax_scale(*scale)) return {};
  const bool is_positive = std::isfinite(*scale) && *scale > 0.0f;
  const std::string expected =
      is_positive ? std::string(kSoftmaxScaleRange) +
                        ", where its product with 8 log2(e) keeps the digits of single precision"
                  : "a finite number > 0";
  return invalid_value("softmax_scale: " + number_text(*scale) + "; expected " + expected +
                       ". Leave it out for 1/sqrt(D).");
}

namespace {

template <class Enum>
MaybeRefusal validate_enumerator(const char* name, Enum value) {
  if (is_enumerator(value)) return {};
  return invalid_value(std::string(name) + ": " + value_text(value) + " is unknown; expected " +
                       expected_enumerators<Enum>(true) + ".");
}

MaybeRefusal validate_numerics(const NumericOptions& numerics) {
  MaybeRefusal refusal;
  for_each_numeric_option([&](const auto& option) {
    const auto value = numerics.*option.field;
    if (refusal || is_allowed(option, value)) return;
    refusal = invalid_value(std::string(option.name) + ": " + value_text(value) + "; expected " +
                            expected_values(option, true) + ". The default is " +
                            value_text(option.default_value()) + ".");
  });
  return refusal;
}

MaybeRefusal validate_selection(const KeySelection& keys, Mask mask) {
  if (!keys.any()) return {};
  if (reinterpret_cast<std::uintptr_t>(keys.lengths) % alignof(std::int32_t) != 0) {
    return invalid_value("key_lengths: pointer is not a multiple of 4; expected aligned integers.");
  }
  if (mask == Mask::none) return {};
  return unsupported(std::string(selection_name(keys)) +
                     ": together with a causal mask; expected mask none. Drop one of the two, or "
                     "use another attention function for this layer.");
}

// What a head can be planned with is what its options may ask for.
static_assert([] {
  for (int i = 0; i < numerics::kExtraStepChoices; ++i) {
    if (kExtraStepLimits[static_cast<std::size_t>(i)] != numerics::extra_step_choice(i)) {
      return false;
    }
  }
  return kExtraStepLimits.size() == numerics::kExtraStepChoices;
}());

}  // namespace

const char* selection_name(const KeySelection& keys) {
  return keys.mask != nullptr ? "key_mask" : "key_lengths";
}

MaybeRefusal validate_no_selection(const AttentionOptions& options) {
  if (options.sequences.any()) {
    return unsupported("sequences: " + std::to_string(options.sequences.count) +
                       " packed ones; expected tensors that are not packed for prepared inputs and "
                       "exact attention. Call attention() with them, or once for each sequence.");
  }
  const KeySelection& keys = options.keys;
  if (!keys.any()) return {};
  return unsupported(std::string(selection_name(keys)) +
                     ": selects keys; expected none, all of them take part in prepared inputs and "
                     "exact attention. Call attention() with it, or pass k and v without the other "
                     "keys.");
}

MaybeRefusal validate_mask(Mask mask) { return validate_enumerator("mask", mask); }

MaybeRefusal validate_options(const AttentionOptions& options) {
  if (MaybeRefusal refusal = validate_mask(options.mask)) return refusal;
  if (MaybeRefusal refusal = validate_softmax_scale(options.softmax_scale)) return refusal;
  if (MaybeRefusal refusal = validate_enumerator("key_order", options.key_order)) return refusal;
  if (MaybeRefusal refusal = validate_selection(options.keys, options.mask)) return refusal;
  if (MaybeRefusal refusal = validate_sequence_options(options.sequences, options.keys)) {
    return refusal;
  }
  return validate_numerics(options.numerics);
}

MaybeRefusal validate_execution(const Execution& execution) {
  if (execution.threads >= 0 && execution.threads <= kMaxThreads) return {};
  return invalid_value("threads: " + std::to_string(execution.threads) +
                       "; expected 0 (the default that info() tells) to " +
                       std::to_string(kMaxThreads) + ".");
}

MaybeRefusal validate_rows(std::span<const std::int64_t> rows, std::int64_t queries) {
  for (const std::int64_t row : rows) {
    if (row >= 0 && row < queries) continue;
    return invalid_value("rows: " + std::to_string(row) + "; expected 0 <= row < " +
                         std::to_string(queries) + ", the number of queries.");
  }
  return {};
}

MaybeRefusal validate_repair(double budget, const AttentionOptions& options) {
  // Written so that NaN fails, too.
  if (!(budget >= 0.0 && budget < 1.0)) {
    return invalid_value("budget: " + std::to_string(budget) +
                         "; expected 0 <= budget < 1, the share of tokens to repair.");
  }
  if (budget > 0.0 && options.mask != Mask::none) {
    return unsupported("budget: " + std::to_string(budget) +
                       " together with a causal mask; expected mask none, because repair rows "
                       "stand outside the sequence. Drop the mask or use budget 0.");
  }
  return {};
}

}  // namespace openvc::api
