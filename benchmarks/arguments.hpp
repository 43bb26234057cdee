// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

// The command lines of the programs that are started by hand.
namespace openvc::benchmarks {

/// Tokens and heads: "4096x8".
struct Shape {
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
};

/// Options with one value, and flags without. Whatever is not a known option with a value of its
/// kind is refused: a mistyped benchmark would measure something else.
class Arguments {
 public:
  explicit Arguments(std::string program) : program_(std::move(program)) {}

  void flag(std::string name, bool& value, bool when_given = true) {
    options_.push_back({std::move(name), "", [&value, when_given](std::string_view) {
                          value = when_given;
                          return true;
                        }});
  }

  void above_zero(std::string name, double& value) {
    add(std::move(name), "<number above 0>", [&value](std::string_view text) {
      return read(text, value) && std::isfinite(value) && value > 0.0;
    });
  }

  /// From 0 on, and below 1.
  void share(std::string name, double& value) {
    add(std::move(name), "<0 <= number < 1>", [&value](std::string_view text) {
      return read(text, value) && value >= 0.0 && value < 1.0;
    });
  }

  void one_of(std::string name, std::vector<int> allowed, int& value) {
    std::string form = "<";
    for (const int x : allowed) form += (form.size() > 1 ? "|" : "") + std::to_string(x);
    add(std::move(name), form + ">", [&value, allowed = std::move(allowed)](std::string_view text) {
      if (!read(text, value)) return false;
      for (const int x : allowed) {
        if (x == value) return true;
      }
      return false;
    });
  }

  void counts(std::string name, std::vector<std::int64_t>& values) {
    add(std::move(name), "<number from 1 on>,...", [&values](std::string_view text) {
      return read_list(text, values, [](std::string_view part, std::int64_t& x) {
        return read(part, x) && x >= 1;
      });
    });
  }

  void count(std::string name, std::int64_t& value) {
    add(std::move(name), "<number from 1 on>",
        [&value](std::string_view text) { return read(text, value) && value >= 1; });
  }

  /// Positions in a list of `size` things.
  void indices(std::string name, std::size_t size, std::vector<std::size_t>& values) {
    add(std::move(name), "<index below " + std::to_string(size) + ">,...",
        [&values, size](std::string_view text) {
          return read_list(text, values, [size](std::string_view part, std::size_t& x) {
            return read(part, x) && x < size;
          });
        });
  }

  void shapes(std::string name, std::vector<Shape>& values) {
    add(std::move(name), "<tokens>x<heads>,...", [&values](std::string_view text) {
      return read_list(text, values, [](std::string_view part, Shape& shape) {
        const std::size_t x = part.find('x');
        return x != std::string_view::npos && read(part.substr(0, x), shape.tokens) &&
               read(part.substr(x + 1), shape.heads) && shape.tokens >= 1 && shape.heads >= 1;
      });
    });
  }

  /// Reads the command line; what is wrong with it, or nothing.
  [[nodiscard]] std::string refusal(int count, const char* const* arguments) const {
    for (int i = 1; i < count; ++i) {
      const std::string_view name = arguments[i];
      const Option* option = find(name);
      if (option == nullptr) return "unknown option '" + std::string(name) + "'";
      if (option->form.empty()) {
        static_cast<void>(option->read(""));
        continue;
      }
      if (i + 1 == count) return std::string(name) + ": no value; expected " + option->form;
      const std::string_view value = arguments[++i];
      if (!option->read(value)) {
        return std::string(name) + ": found '" + std::string(value) + "'; expected " + option->form;
      }
    }
    return {};
  }

  /// The same for a main(): prints what is wrong and how to call the program. True if all is right.
  [[nodiscard]] bool parse(int count, const char* const* arguments) const {
    const std::string wrong = refusal(count, arguments);
    if (wrong.empty()) return true;
    std::fprintf(stderr, "%s: %s\nusage: %s%s\n", program_.c_str(), wrong.c_str(), program_.c_str(),
                 usage().c_str());
    return false;
  }

 private:
  struct Option {
    std::string name;
    std::string form;  // of the value; empty for a flag
    std::function<bool(std::string_view)> read;
  };

  void add(std::string name, std::string form, std::function<bool(std::string_view)> read) {
    options_.push_back({std::move(name), std::move(form), std::move(read)});
  }

  [[nodiscard]] const Option* find(std::string_view name) const {
    for (const Option& option : options_) {
      if (option.name == name) return &option;
    }
    return nullptr;
  }

  [[nodiscard]] std::string usage() const {
    std::string text;
    for (const Option& option : options_) {
      text += " [" + option.name + (option.form.empty() ? "" : " ") + option.form + "]";
    }
    return text;
  }

  template <class Number>
  static bool read(std::string_view text, Number& value) {
    const char* end = text.data() + text.size();
    const auto [rest, failure] = std::from_chars(text.data(), end, value);
    return failure == std::errc() && rest == end;
  }

  template <class Value, class Read>
  static bool read_list(std::string_view text, std::vector<Value>& values, const Read& read_part) {
    values.clear();
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      Value value{};
      if (!read_part(text.substr(begin, end - begin), value)) return false;
      values.push_back(value);
      begin = end + 1;
    }
    return true;
  }

  std::string program_;
  std::vector<Option> options_;
};

}  // namespace openvc::benchmarks
