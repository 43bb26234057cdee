// SPDX-License-Identifier: BSD-3-Clause
#include "study/report_text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "numerics/contract.hpp"

namespace openvc::study {
namespace {

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7F; }

/// Whether this character of two or three bytes is a control character (U+0080 to U+009F), or one
/// of U+FFFE and U+FFFF, which XML forbids.
bool is_forbidden(std::string_view text) {
  if (text.size() == 2) return text[0] == '\xC2' && static_cast<unsigned char>(text[1]) < 0xA0;
  return text == "\xEF\xBF\xBE" || text == "\xEF\xBF\xBF";
}

/// Bytes of the UTF-8 character that starts with this one.
std::size_t character_size(unsigned char first) {
  return first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

}  // namespace

std::string valid_text(std::string_view text) {
  // The JSON writer has the check and the replacement.
  using Json = nlohmann::json;
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace))
      .get<std::string>();
}

std::string printable(std::string_view text) {
  const std::string valid = valid_text(text);
  std::string result;
  for (std::size_t i = 0; i < valid.size();) {
    const std::size_t size = character_size(static_cast<unsigned char>(valid[i]));
    const std::string_view character = std::string_view(valid).substr(i, size);
    const bool shown =
        size == 1 ? !is_control(static_cast<unsigned char>(valid[i])) : !is_forbidden(character);
    result += shown ? character : std::string_view(" ");
    i += size;
  }
  return result;
}

std::string percent(double share) {
  const double value = 100.0 * share;
  if (!std::isfinite(value)) return fmt::format("{}", value);
  if (value == 0.0) return "0 %";
  const double size = std::abs(value);
  // Three significant digits, but no more than four decimals: less is noise.
  constexpr double kTooSmall = 0.00005;
  if (size < kTooSmall) return "< 0.0001 %";
  const int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
  return fmt::format("{:.{}f} %", value, size < 0.09995 ? 4 : decimals);
}

std::string exact_percent(double share) { return fmt::format("{:.4g} %", 100.0 * share); }

std::string grouped(std::int64_t number) {
  std::string digits = fmt::format("{}", number);
  const std::size_t sign = number < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > sign + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string shape_phrase(const StudyResult& study, std::string_view times) {
  std::string text;
  if (study.batch > 1) text = fmt::format("batch {} {} ", study.batch, times);
  if (study.queries == study.keys) {
    text += fmt::format("{} tokens", grouped(study.queries));
  } else {
    text +=
        fmt::format("{} queries {} {} keys", grouped(study.queries), times, grouped(study.keys));
  }
  return text + fmt::format(" {} {} head{} {} {} channels, {}{}", times, study.heads,
                            study.heads == 1 ? "" : "s", times, numerics::kHeadDim,
                            element_name(study.element_type),
                            study.mask == Mask::causal ? ", causal" : "");
}

std::string short_head_name(const StudyResult& study, std::size_t index) {
  const HeadResult& head = study.results[index];
  return study.batch > 1 ? fmt::format("{}/{}", head.batch, head.head)
                         : fmt::format("{}", head.head);
}

std::string plan_phrase(const HeadPlan& plan) {
  std::string text;
  const auto add = [&text](std::string_view part) {
    if (!text.empty()) text += ", ";
    text += part;
  };
  if (plan.extra_steps > 0) {
    add(fmt::format("{} residual {}", plan.extra_steps * numerics::kResidualChannelsPerStep,
                    plan.rotated ? "columns on principal axes" : "channels"));
  } else if (plan.rotated) {
    add("rotated");
  }
  return text.empty() ? "plain" : text;
}

}  // namespace openvc::study
