// SPDX-License-Identifier: BSD-3-Clause
#include "api/environment_switch.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>

#include "openvc/status.hpp"

namespace openvc::api {
namespace {

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, text) != words.end();
}

}  // namespace

bool environment_switch(const char* name, bool otherwise, const char* purpose) {
  const char* value = std::getenv(name);
  std::string text = value != nullptr ? value : "";
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (text.empty()) return otherwise;
  if (is_one_of(text, {"1", "true", "on", "yes"})) return true;
  if (is_one_of(text, {"0", "false", "off", "no"})) return false;
  throw Error(ErrorCode::invalid_value,
              std::string(name) + ": '" + value +
                  "' in the environment; expected 1, true, on or yes " + purpose +
                  ", or 0, false, off or no. Set one of them, or unset the variable.");
}

}  // namespace openvc::api
