// SPDX-License-Identifier: BSD-3-Clause
#include "input_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "command.hpp"
#include "openvc/budget.hpp"
#include "openvc/numeric_option_list.hpp"
#include "openvc/option_text.hpp"
#include "openvc/status.hpp"
#include "output.hpp"
#include "study/families.hpp"

namespace openvc::cli {
namespace {

constexpr std::string_view kInput = "--input";
constexpr std::string_view kConvertedFrom = "--converted-from";

/// Accepts what parses as a number and passes `accept`.
CLI::Validator number_validator(std::string description, std::function<bool(double)> accept) {
  return CLI::Validator(
      [description, accept = std::move(accept)](std::string& text) {
        double value = 0.0;
        const char* end = text.data() + text.size();
        const auto [rest, failure] = std::from_chars(text.data(), end, value);
        if (failure == std::errc() && rest == end && accept(value)) return std::string();
        return fmt::format("'{}' is not {}", text, description);
      },
      "");
}

/// The parser itself would wrap negative numbers, and take the largest for all beyond it.
CLI::Validator whole_number_of_64_bits() {
  return CLI::Validator(
      [](std::string& text) {
        std::uint64_t value = 0;
        const char* end = text.data() + text.size();
        const auto [rest, failure] = std::from_chars(text.data(), end, value);
        if (failure == std::errc() && rest == end) return std::string();
        return fmt::format("'{}' is not a whole number from 0 to 2^64 - 1", text);
      },
      "");
}

CLI::Validator softmax_scale() {
  return number_validator(fmt::format("a number from {}", kSoftmaxScaleRange), is_softmax_scale);
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const study::Family& family : study::families()) names.emplace_back(family.name);
  return names;
}

ElementType element_type(const std::string& name) {
  for (const ElementType type :
       {ElementType::bfloat16, ElementType::float16, ElementType::float32}) {
    if (name == element_name(type)) return type;
  }
  throw UsageError("unknown element type " + name);
}

/// An option whose words are the names of an enumeration; `value` holds the default.
template <class Enum>
void add_enumeration(CLI::App& command, const std::string& name, Enum& value,
                     const std::string& help) {
  const auto names = names_of(value);
  command
      .add_option_function<std::string>(
          name, [&value](const std::string& word) { value = *enumerator_named<Enum>(word); }, help)
      ->check(CLI::IsMember(std::vector<std::string>(names.begin(), names.end())))
      ->default_str(value_text(value));
}

/// What the list says about an option, in one line.
template <class Value>
std::string help_of(const NumericOption<Value>& option) {
  std::string help = option.documentation;
  help.resize(std::min(help.find(". "), help.size() - 1));  // the first sentence
  if (*option.unit != '\0') help += fmt::format(", in {}", option.unit);
  return help;
}

/// Accepts what the list allows.
CLI::Validator allowed_by(const NumericOption<int>& option) {
  const auto values = option.allowed.values;
  return CLI::IsMember(std::vector<int>(values.begin(), values.end()));
}

CLI::Validator allowed_by(const NumericOption<float>& option) {
  return number_validator(expected_values(option),
                          [&option](double number) { return option.allowed.contains(number); });
}

/// --smooth-keys and --no-smooth-keys, --rotation automatic, --max-extra-steps 2.
template <class Value>
void add_numeric_option(CLI::App& command, const NumericOption<Value>& option, Value& value) {
  std::string words = option.name;
  std::ranges::replace(words, '_', '-');
  const std::string name = "--" + words;
  if constexpr (std::is_same_v<Value, bool>) {
    command.add_flag(fmt::format("{},!--no-{}", name, words), value, help_of(option))
        ->default_str(value_text(value));
  } else if constexpr (std::is_enum_v<Value>) {
    add_enumeration(command, name, value, help_of(option));
  } else {
    command.add_option(name, value, help_of(option))
        ->check(allowed_by(option))
        ->default_str(value_text(value));
  }
}

constexpr const char* kMaskNote =
    "the recorded call had an attention mask, which is not stored and which this library does not "
    "offer; all numbers are of the call without it";

/// What a capture says about itself, in one line: everything but what its call is computed with.
std::string describe(io::Metadata metadata, const std::string& prefix) {
  for (const char* key : {"softmax_scale", "causal", "masked", "layout"}) {
    metadata.erase(key);
    metadata.erase(prefix + key);
  }
  std::string text;
  const auto add = [&](const std::string& key, const std::string& value) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, value);
  };
  for (const char* key : {"model", "video", "layer", "step", "sigma", "grid"}) {
    const auto entry = metadata.find(key);
    if (entry == metadata.end()) continue;
    add(entry->first, entry->second);
    metadata.erase(entry);
  }
  for (const auto& [key, value] : metadata) add(key, value);
  return text;
}

void replace_all(std::string& text, const std::string& old, const std::string& replacement) {
  for (std::size_t at = text.find(old); at != std::string::npos;
       at = text.find(old, at + replacement.size())) {
    text.replace(at, old.size(), replacement);
  }
}

/// The files that are read, each with the name of what it was converted from. A single one may
/// hold the tensors of several.
std::vector<std::pair<std::string, std::string>> names_of_converted(
    const std::vector<std::filesystem::path>& read,
    const std::vector<std::filesystem::path>& converted_from) {
  std::vector<std::pair<std::string, std::string>> names;
  if (read.size() == converted_from.size()) {
    for (std::size_t i = 0; i < read.size(); ++i) {
      names.emplace_back(read[i].string(), converted_from[i].string());
    }
  } else if (read.size() == 1 && !converted_from.empty()) {
    std::string all;
    for (const std::filesystem::path& path : converted_from) {
      all += (all.empty() ? "" : ", ") + path.string();
    }
    names.emplace_back(read.front().string(), all);
  }
  return names;
}

}  // namespace

CLI::Validator at_least_one() {
  constexpr double kLargest = 1e9;
  return number_validator("a whole number from 1 to 1,000,000,000",
                          [](double x) { return x >= 1.0 && x <= kLargest && x == std::floor(x); });
}

CLI::Validator thread_count() {
  return number_validator(fmt::format("a whole number from 0 to {}", kMaxThreads), [](double x) {
    return x >= 0.0 && x <= kMaxThreads && x == std::floor(x);
  });
}

CLI::Validator token_share() {
  return number_validator("a share of the tokens: 0 <= x < 1",
                          [](double x) { return x >= 0.0 && x < 1.0; });
}

void InputOptions::add_files(CLI::App& command) {
  command.option_defaults()->group("Input");
  command
      .add_option("-i,--input", request_.files,
                  "safetensors file with q, k and v; or three .npy files in this order")
      ->expected(1, 3)
      ->check(file_path());
  // For a front end that converts files: messages and reports name what the user gave.
  command.add_option(std::string(kConvertedFrom), converted_from_)->expected(1, 3)->group("");
  command.add_flag("--only-check", only_check_)->group("");
  const auto add = [this](CLI::Option* option) {
    file_details_.push_back(option);
    return option;
  };
  add(command.add_option("--tensors", request_.prefix,
                         "text before the names q, k and v, for files with several sets"));
  add(command.add_option("--q-name", request_.q, "name of the tensor Q"))->capture_default_str();
  add(command.add_option("--k-name", request_.k, "name of the tensor K"))->capture_default_str();
  add(command.add_option("--v-name", request_.v, "name of the tensor V"))->capture_default_str();
  add(command.add_option(
          "--layout", layout_,
          "order of the stored dimensions, with or without batch; from the file if absent"))
      ->check(CLI::IsMember({"shd", "hsd"}));
  add(command.add_flag("--uint16-as-bfloat16", request_.uint16_is_bfloat16,
                       "read uint16 arrays of .npy files as the bits of bfloat16"));
}

void InputOptions::add_family(CLI::App& command) {
  command.option_defaults()->group("Input");
  command.add_option("--family", family_, "synthetic input instead of a file")
      ->check(CLI::IsMember(family_names()))
      ->excludes("--input");
  const auto add = [this](CLI::Option* option) {
    family_details_.push_back(option);
    return option;
  };
  add(command.add_option("--tokens", tokens_, "queries, and keys unless given, of a family"))
      ->check(at_least_one())
      ->capture_default_str();
  add(command.add_option("--keys", keys_, "keys of a family"))->check(at_least_one());
  add(command.add_option("--heads", heads_, "heads of a family"))
      ->check(at_least_one())
      ->capture_default_str();
  add(command.add_option("--batch", batch_, "batch entries of a family"))
      ->check(at_least_one())
      ->capture_default_str();
  add(command.add_option("--seed", seed_, "seed of a family"))
      ->check(whole_number_of_64_bits())
      ->capture_default_str();
  add(command.add_option("--type", type_, "element type of a family"))
      ->check(CLI::IsMember({"bfloat16", "float16", "float32"}))
      ->capture_default_str();
}

std::vector<NamedPath> InputOptions::files() const {
  std::vector<NamedPath> all;
  for (const auto& path : converted_from_) all.push_back({std::string(kInput), path});
  for (const auto& path : request_.files) all.push_back({std::string(kInput), path});
  return all;
}

void InputOptions::require_fitting_details() const {
  for (const CLI::Option* option : family_details_) {
    if (request_.files.empty() || option->count() == 0) continue;
    throw UsageError(
        fmt::format("{0} describes made-up input, and --input was given; leave out {0}, or give "
                    "--family instead of --input",
                    option->get_name()));
  }
  for (const CLI::Option* option : file_details_) {
    if (family_.empty() || option->count() == 0) continue;
    throw UsageError(
        fmt::format("{0} describes files, and --family was given; leave out {0}, or give --input "
                    "instead of --family",
                    option->get_name()));
  }
}

InputOptions::Input InputOptions::load(int threads) const {
  require_fitting_details();
  if (!request_.files.empty()) return load_files();
  if (!family_.empty()) return load_family(threads);
  throw UsageError(
      "no input: give --input FILE or --family NAME\nRun with --help for the arguments.");
}

study::Capture InputOptions::load_named(const study::CaptureRequest& request) const {
  try {
    return study::load_capture(request);
  } catch (const Error& error) {
    std::string text = error.what();
    for (const auto& [read, given] : names_of_converted(request.files, converted_from_)) {
      replace_all(text, read, given);
    }
    throw Error(error.code(), text);
  }
}

InputOptions::Input InputOptions::load_files() const {
  study::CaptureRequest request = request_;
  if (!layout_.empty()) {
    request.layout =
        layout_ == "shd" ? study::StoredLayout::sequence_head : study::StoredLayout::head_sequence;
  }
  Input input;
  input.from_file = true;
  input.capture = load_named(request);
  input.name = (converted_from_.empty() ? request.files : converted_from_).front().filename();
  if (!request.prefix.empty()) input.name += ", " + request.prefix + "*";
  input.details = describe(input.capture.metadata, request.prefix);
  input.softmax_scale = input.capture.softmax_scale;
  input.causal = input.capture.causal;
  if (input.capture.masked) {
    input.note = kMaskNote;
    warn(fmt::format("{}: {}", input.name, input.note));
  }
  return input;
}

InputOptions::Input InputOptions::load_family(int threads) const {
  Input input;
  input.generated = study::generate(family_, {batch_, tokens_, keys_.value_or(tokens_), heads_},
                                    element_type(type_), seed_, threads);
  input.name = "family " + family_;
  for (const study::Family& family : study::families()) {
    if (family.name == family_) input.details = family.description;
  }
  return input;
}

void AttentionArguments::add(CLI::App& command) {
  command.option_defaults()->group("Attention");
  causal_flag_ = command.add_flag("--causal,!--no-causal", causal_,
                                  "queries see no later keys; from the file if absent");
  command
      .add_option("--softmax-scale", softmax_scale_,
                  "factor of q.k; from the file, else 1/sqrt(head dimension)")
      ->check(softmax_scale());
  add_enumeration(command, "--key-order", key_order_, "order in which key blocks are visited");
  command.add_option("--threads", threads_, "threads of the CPU; 0 takes what info tells")
      ->check(thread_count())
      ->capture_default_str();
}

void AttentionArguments::add_numerics(CLI::App& command) {
  command.option_defaults()->group("Numerics");
  // Values are stored in the order of the options: those that follow change what the budget set.
  const auto names = names_of(Budget{});
  command
      .add_option_function<std::string>(
          "--budget",
          [this](const std::string& word) {
            numerics_ = numeric_options(*enumerator_named<Budget>(word));
          },
          "time or accuracy: numeric options that belong together")
      ->check(CLI::IsMember(std::vector<std::string>(names.begin(), names.end())))
      ->default_str(value_text(Budget::balanced));
  for_each_numeric_option(
      [&](const auto& option) { add_numeric_option(command, option, numerics_.*option.field); });
}

AttentionOptions AttentionArguments::options(std::optional<float> stored_scale,
                                             std::optional<bool> stored_causal) const {
  const bool causal = causal_flag_->count() > 0 ? causal_ : stored_causal.value_or(false);
  AttentionOptions options;
  options.mask = causal ? Mask::causal : Mask::none;
  options.softmax_scale = softmax_scale_ ? softmax_scale_ : stored_scale;
  options.key_order = key_order_;
  options.numerics = numerics_;
  return options;
}

Execution AttentionArguments::execution() const {
  Execution execution;
  execution.threads = threads_;
  return execution;
}

std::string quoted_command(const CLI::App& command) {
  std::string text = "open-vc-attn " + command.get_name();
  const CLI::Option* converted_from = command.get_option_no_throw(std::string(kConvertedFrom));
  const bool converted = converted_from != nullptr && converted_from->count() > 0;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    std::string name = "--" + option->get_lnames().front();
    if (converted && name == kInput) continue;
    if (option == converted_from) name = kInput;
    const bool flag = option->get_expected_max() == 0;
    if (flag && !option->as<bool>()) {
      const std::vector<std::string>& negatives = option->get_fnames();
      name = negatives.empty() ? name + "=false" : "--" + negatives.front();
    }
    text += " " + name;
    if (flag) continue;
    for (const std::string& value : option->results()) {
      const bool plain = value.find_first_not_of(
                             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "_-./=,:+@%") == std::string::npos;
      if (plain && !value.empty()) {
        text += " " + value;
        continue;
      }
      std::string quoted = value;
      replace_all(quoted, "'", R"('\'')");  // as shells want it
      text += " '" + quoted + "'";
    }
  }
  return text;
}

}  // namespace openvc::cli
