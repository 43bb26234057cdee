// SPDX-License-Identifier: BSD-3-Clause
#include "study/stored_call.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "io/file_error.hpp"
#include "openvc/options.hpp"
#include "study/tensors.hpp"

namespace openvc::study {
namespace {

/// A parameter of attention under a name that this reader does not take.
struct ForeignParameter {
  std::string_view name;
  std::string_view own_name;  // empty: the library has no such parameter
};

constexpr auto kForeignParameters = std::to_array<ForeignParameter>({
    {"scale", "softmax_scale"},
    {"sm_scale", "softmax_scale"},
    {"scaling", "softmax_scale"},
    {"is_causal", "causal"},
    {"tensor_layout", "layout"},
    {"qkv_layout", "layout"},
    {"attn_mask", ""},
    {"attention_mask", ""},
    {"mask", ""},
    {"attn_bias", ""},
    {"bias", ""},
    {"alibi_slopes", ""},
    {"dropout", ""},
    {"dropout_p", ""},
    {"softcap", ""},
    {"logit_softcapping", ""},
    {"window", ""},
    {"window_size", ""},
    {"sliding_window", ""},
    {"block_mask", ""},
    {"cu_seqlens", ""},
    {"cu_seqlens_q", ""},
    {"cu_seqlens_k", ""},
    {"enable_gqa", ""},
});

/// One thing that a file says: the text of a metadata entry, or of a tensor of one element.
struct Statement {
  const io::TensorFile* file;
  std::string key;
  std::string text;
};

[[noreturn]] void refuse(const Statement& statement, std::string expected, std::string advice) {
  throw io::FileError(io::FileErrorReason::malformed, statement.file->path(),
                      {.found = statement.key + " = " + io::quote_for_message(statement.text),
                       .expected = std::move(expected),
                       .advice = std::move(advice)});
}

template <class Integer>
std::string integer_text(std::span<const std::byte> bytes) {
  Integer value{};
  std::memcpy(&value, bytes.data(), sizeof(value));
  return std::to_string(value);
}

/// Digits that give back the same number.
template <class Float>
std::string float_text(Float value) {
  std::array<char, 64> text{};
  const auto [end, failure] = std::to_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() ? std::string(text.data(), end) : std::string("?");
}

/// The number that a tensor consists of; nothing if it has not one element or another type.
std::optional<std::string> scalar_text(const io::TensorEntry& entry) {
  if (std::ranges::any_of(entry.shape, [](std::int64_t extent) { return extent != 1; })) {
    return std::nullopt;
  }
  switch (entry.type) {
    case io::StoredType::boolean:
      return entry.bytes.front() == std::byte{0} ? "false" : "true";
    case io::StoredType::uint8:
      return integer_text<std::uint8_t>(entry.bytes);
    case io::StoredType::int8:
      return integer_text<std::int8_t>(entry.bytes);
    case io::StoredType::uint16:
      return integer_text<std::uint16_t>(entry.bytes);
    case io::StoredType::int16:
      return integer_text<std::int16_t>(entry.bytes);
    case io::StoredType::uint32:
      return integer_text<std::uint32_t>(entry.bytes);
    case io::StoredType::int32:
      return integer_text<std::int32_t>(entry.bytes);
    case io::StoredType::uint64:
      return integer_text<std::uint64_t>(entry.bytes);
    case io::StoredType::int64:
      return integer_text<std::int64_t>(entry.bytes);
    case io::StoredType::float64: {
      double value = 0.0;
      std::memcpy(&value, entry.bytes.data(), sizeof(value));
      return float_text(value);
    }
    default:
      break;
  }
  const auto type = io::attention_element_type(entry.type);
  if (!type) return std::nullopt;
  std::array<std::byte, sizeof(float)> aligned{};
  std::ranges::copy(entry.bytes, aligned.begin());
  return float_text(load_element(aligned.data(), *type, 0));
}

/// All statements under this key.
std::vector<Statement> statements_under(const std::vector<io::TensorFile>& files,
                                        const std::string& key) {
  std::vector<Statement> found;
  for (const io::TensorFile& file : files) {
    if (const auto entry = file.metadata().find(key); entry != file.metadata().end()) {
      found.push_back({&file, key, entry->second});
    }
    // The one tensor of a .npy file is named by its path, which says nothing about the call.
    if (file.path().extension() == ".npy") continue;
    if (const io::TensorEntry* entry = file.find(key)) {
      const auto text = scalar_text(*entry);
      if (!text) {
        refuse({&file, key, io::type_text(*entry) + " " + io::shape_text(entry->shape)},
               "a tensor of one number", "Store the value as one number.");
      }
      found.push_back({&file, key, *text});
    }
  }
  return found;
}

/// The statements about `name`: those with the prefix if there are any.
std::vector<Statement> statements_about(const std::vector<io::TensorFile>& files,
                                        const CaptureRequest& request, const std::string& name) {
  if (!request.prefix.empty()) {
    std::vector<Statement> found = statements_under(files, request.prefix + name);
    if (!found.empty()) return found;
  }
  return statements_under(files, name);
}

/// What all statements about `name` agree on; `read(statement)` is the value of one of them.
template <class Value, class Read>
std::optional<Value> agreed(const std::vector<io::TensorFile>& files, const CaptureRequest& request,
                            const std::string& name, const Read& read) {
  std::optional<Value> value;
  std::string first;
  for (const Statement& statement : statements_about(files, request, name)) {
    const Value found = read(statement);
    if (value && *value != found) {
      refuse(statement, "the " + io::quote_for_message(first) + " that was read before it",
             "Store the value once, or the same one everywhere.");
    }
    value = found;
    first = statement.text;
  }
  return value;
}

float read_scale(const Statement& statement) {
  double scale = 0.0;
  const char* end = statement.text.data() + statement.text.size();
  const auto [rest, failure] = std::from_chars(statement.text.data(), end, scale);
  if (failure != std::errc() || rest != end || !is_softmax_scale(scale)) {
    refuse(statement, "a number from " + std::string(kSoftmaxScaleRange),
           "Correct it in the file; --softmax-scale sets the scale of a file that has none.");
  }
  return static_cast<float>(scale);
}

bool read_flag(const Statement& statement) {
  for (const char* word : {"true", "True", "1"}) {
    if (statement.text == word) return true;
  }
  for (const char* word : {"false", "False", "0"}) {
    if (statement.text == word) return false;
  }
  refuse(statement, "true or false", "Correct it in the file.");
}

StoredLayout read_layout(const Statement& statement) {
  if (statement.text == "SHD" || statement.text == "BSHD") return StoredLayout::sequence_head;
  if (statement.text == "HSD" || statement.text == "BHSD") return StoredLayout::head_sequence;
  refuse(statement, "SHD, BSHD, HSD or BHSD",
         "Correct it in the file, or give the layout with --layout shd or --layout hsd.");
}

void refuse_foreign_parameters(const std::vector<io::TensorFile>& files,
                               const CaptureRequest& request) {
  for (const auto& [name, own_name] : kForeignParameters) {
    for (const std::string& key : {request.prefix + std::string(name), std::string(name)}) {
      for (const io::TensorFile& file : files) {
        const bool is_npy = file.path().extension() == ".npy";
        if (!file.metadata().contains(key) && (is_npy || file.find(key) == nullptr)) continue;
        throw io::FileError(
            io::FileErrorReason::unsupported, file.path(),
            {.found = "the parameter " + io::quote_for_message(key) + " of attention",
             .expected = own_name.empty() ? "softmax_scale, causal, masked or layout"
                                          : "the name " + std::string(own_name) + " for it",
             .advice = own_name.empty()
                           ? "This library does not offer it: leave it out of the file. If the "
                             "call had a mask, store masked = true instead."
                           : "Rename it in the file."});
      }
    }
  }
}

}  // namespace

bool says_something(const io::TensorFile& file, const CaptureRequest& request) {
  const bool is_npy = file.path().extension() == ".npy";
  for (const char* name : {"softmax_scale", "causal", "masked", "layout"}) {
    for (const std::string& key : {request.prefix + name, std::string(name)}) {
      if (file.metadata().contains(key) || (!is_npy && file.find(key) != nullptr)) return true;
    }
  }
  return false;
}

StoredCall stored_call(const std::vector<io::TensorFile>& files, const CaptureRequest& request) {
  refuse_foreign_parameters(files, request);
  StoredCall call;
  call.softmax_scale = agreed<float>(files, request, "softmax_scale", read_scale);
  call.causal = agreed<bool>(files, request, "causal", read_flag);
  call.masked = agreed<bool>(files, request, "masked", read_flag);
  // One that was asked for replaces what the files say, even if that cannot be read.
  if (!request.layout) call.layout = agreed<StoredLayout>(files, request, "layout", read_layout);
  return call;
}

}  // namespace openvc::study
