// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "openvc/attention.hpp"
#include "openvc/budget.hpp"
#include "openvc/numeric_option_list.hpp"
#include "openvc/option_text.hpp"
#include "openvc/options.hpp"
#include "openvc/status.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace openvc::python {
namespace {

/// A value of an option as Python says it. Floats become what their shortest text reads as.
template <class Value>
nb::object to_python(Value value) {
  if constexpr (std::is_enum_v<Value>) {
    return nb::cast(value_text(value));
  } else if constexpr (std::is_same_v<Value, float>) {
    return nb::float_(nb::cast(number_text(value)));
  } else {
    return nb::cast(value);
  }
}

template <class Enum>
nb::tuple names(Enum enumeration) {
  nb::list list;
  for (const char* name : names_of(enumeration)) list.append(name);
  return nb::tuple(list);
}

template <class Enum>
Enum enumerator(const char* argument, nb::handle name) {
  const auto text = nb::cast<std::string>(name);
  const std::optional<Enum> value = enumerator_named<Enum>(text);
  if (value) return *value;
  throw Error(ErrorCode::invalid_value, std::string(argument) + ": '" + text + "'; expected " +
                                            expected_enumerators<Enum>(false) + ".");
}

/// Type, allowed values and default of an option, under the names of NumericOption of _numerics.py.
template <class Value>
nb::dict option_row(const NumericOption<Value>& option) {
  nb::dict row;
  row["name"] = option.name;
  row["values"] = nb::tuple();
  row["least"] = row["most"] = nb::none();
  row["expected"] = expected_values(option);
  if constexpr (std::is_same_v<Value, bool>) {
    row["type_name"] = "bool";
    row["values"] = nb::make_tuple(false, true);
    row["expected"] = "True or False";
  } else if constexpr (std::is_same_v<Value, int>) {
    row["type_name"] = "int";
    nb::list values;
    for (const int value : option.allowed.values) values.append(value);
    row["values"] = nb::tuple(values);
  } else if constexpr (std::is_same_v<Value, float>) {
    row["type_name"] = "float";
    row["least"] = option.allowed.least;
    row["most"] = option.allowed.most;
  } else {
    row["type_name"] = "str";
    row["values"] = names(Value{});
  }
  row["default"] = to_python(option.default_value());
  row["unit"] = option.unit;
  row["documentation"] = option.documentation;
  return row;
}

nb::tuple option_rows() {
  nb::list rows;
  for_each_numeric_option([&](const auto& option) { rows.append(option_row(option)); });
  return nb::tuple(rows);
}

nb::dict numerics_dict(const NumericOptions& options) {
  nb::dict result;
  for_each_numeric_option(
      [&](const auto& option) { result[option.name] = to_python(options.*option.field); });
  return result;
}

nb::dict budgets() {
  nb::dict result;
  for (std::size_t i = 0; i < names_of(Budget{}).size(); ++i) {
    const auto budget = static_cast<Budget>(i);
    result[names_of(budget)[i]] = numerics_dict(numeric_options(budget));
  }
  return result;
}

/// `numerics` has an attribute of every name of the list.
NumericOptions numeric_options(nb::handle numerics) {
  NumericOptions result;
  for_each_numeric_option([&]<class Value>(const NumericOption<Value>& option) {
    const nb::object value = nb::getattr(numerics, option.name);
    if constexpr (std::is_enum_v<Value>) {
      result.*option.field = enumerator<Value>(option.name, value);
    } else {
      result.*option.field = nb::cast<Value>(value);
    }
  });
  return result;
}

}  // namespace

void bind_options(nb::module_& module) {
  module.attr("KEY_ORDERS") = names(KeyOrder{});
  module.attr("NUMERIC_OPTIONS") = option_rows();
  module.attr("SMALLEST_SOFTMAX_SCALE") = static_cast<double>(kSmallestSoftmaxScale);
  module.attr("LARGEST_SOFTMAX_SCALE") = static_cast<double>(kLargestSoftmaxScale);
  module.attr("SOFTMAX_SCALE_RANGE") = kSoftmaxScaleRange;
  module.attr("BUDGETS") = budgets();
  nb::class_<AttentionOptions>(module, "AttentionOptions", "What an attention call computes.")
      .def(
          "__init__",
          [](AttentionOptions* self, bool causal, std::optional<float> softmax_scale,
             nb::handle key_order, nb::handle numerics) {
            new (self) AttentionOptions{causal ? Mask::causal : Mask::none, softmax_scale,
                                        enumerator<KeyOrder>("key_order", key_order),
                                        numeric_options(numerics)};
          },
          "causal"_a, "softmax_scale"_a.none(), "key_order"_a, "numerics"_a)
      .def_prop_ro("causal", [](const AttentionOptions& o) { return o.mask == Mask::causal; })
      .def_ro("softmax_scale", &AttentionOptions::softmax_scale)
      .def_prop_ro("key_order", [](const AttentionOptions& o) { return to_python(o.key_order); })
      .def_prop_ro(
          "numerics",
          [](const AttentionOptions& options) { return numerics_dict(options.numerics); },
          "Value of every numeric option, by name.")
      .def(
          "with_keys",
          [](const AttentionOptions& options, std::uintptr_t lengths, std::uintptr_t mask,
             std::int64_t mask_batch_stride, std::int64_t mask_key_stride) {
            AttentionOptions selected = options;
            selected.keys = {.lengths = reinterpret_cast<const std::int32_t*>(lengths),
                             .mask = reinterpret_cast<const std::uint8_t*>(mask),
                             .mask_batch_stride = mask_batch_stride,
                             .mask_key_stride = mask_key_stride};
            return selected;
          },
          "lengths"_a, "mask"_a, "mask_batch_stride"_a, "mask_key_stride"_a,
          "A copy for the keys that int32 lengths [B] and a byte mask [B, Skv] select. Addresses, "
          "0 for none; strides in bytes.")
      .def(
          "with_sequences",
          [](const AttentionOptions& options, std::int64_t count, std::uintptr_t cu_seqlens_q,
             std::uintptr_t cu_seqlens_k, std::int64_t max_seqlen_q, std::int64_t max_seqlen_k) {
            AttentionOptions packed = options;
            packed.sequences = {.count = count,
                                .cu_seqlens_q = reinterpret_cast<const std::int32_t*>(cu_seqlens_q),
                                .cu_seqlens_k = reinterpret_cast<const std::int32_t*>(cu_seqlens_k),
                                .max_seqlen_q = max_seqlen_q,
                                .max_seqlen_k = max_seqlen_k};
            return packed;
          },
          "count"_a, "cu_seqlens_q"_a, "cu_seqlens_k"_a, "max_seqlen_q"_a, "max_seqlen_k"_a,
          "A copy for so many packed sequences, between int32 boundaries at these addresses.");
  module.def(
      "check_sequences",
      [](const std::vector<std::int32_t>& cu_seqlens_q,
         const std::vector<std::int32_t>& cu_seqlens_k, std::int64_t max_seqlen_q,
         std::int64_t max_seqlen_k, std::int64_t queries, std::int64_t keys) {
        check_sequences({.count = static_cast<std::int64_t>(cu_seqlens_q.size()) - 1,
                         .cu_seqlens_q = cu_seqlens_q.data(),
                         .cu_seqlens_k = cu_seqlens_k.data(),
                         .max_seqlen_q = max_seqlen_q,
                         .max_seqlen_k = max_seqlen_k},
                        queries, keys);
      },
      "cu_seqlens_q"_a, "cu_seqlens_k"_a, "max_seqlen_q"_a, "max_seqlen_k"_a, "queries"_a, "keys"_a,
      "Raises for boundaries of one length that fit no tensors of so many queries and keys.");
}

}  // namespace openvc::python
