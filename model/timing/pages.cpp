// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

#include "timing/report.hpp"

namespace openvc::timing {
namespace {

/// Of text in JSON and in SVG.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '"' || c == '\\' || c == '<' || c == '&') {
      result += c == '<' ? "(" : c == '&' ? "+" : "'";
    } else {
      result += c;
    }
  }
  return result;
}

std::string unit_label(const Unit& unit) {
  std::string label = unit.name;
  if (unit.scheduler >= 0) label += ", scheduler " + std::to_string(unit.scheduler);
  return label;
}

template <class... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(), pattern, values...);
  return text.data();
}

const char* colour(const Activity& activity, const std::string& name) {
  if (activity.kind == Activity::Kind::work) return "#7aa6c2";
  if (activity.kind == Activity::Kind::hand_over) return "#cccccc";
  constexpr const char* kColours[] = {"#d9822b", "#5a9e6f", "#9b6bb3", "#c25a5a", "#8a8a3c"};
  std::size_t sum = 0;
  for (const char c : name) sum = sum * 31 + static_cast<unsigned char>(c);
  return kColours[sum % std::size(kColours)];
}

}  // namespace

std::string perfetto_json(const Timeline& timeline, const std::string& title) {
  std::string json = "{\"otherData\": {\"title\": \"" + escaped(title) +
                     "\", \"unit\": \"a microsecond is a clock\"},\n\"traceEvents\": [\n";
  for (std::size_t i = 0; i < timeline.units.size(); ++i) {
    const Unit& unit = timeline.units[i];
    json += format("{\"ph\": \"M\", \"pid\": %d, \"tid\": %zu, \"name\": \"thread_name\", ",
                   unit.block, i) +
            "\"args\": {\"name\": \"" + escaped(unit_label(unit)) + "\"}},\n";
    json += format(
        "{\"ph\": \"M\", \"pid\": %d, \"name\": \"process_name\", \"args\": {\"name\": "
        "\"block %d\"}},\n",
        unit.block, unit.block);
  }
  for (const Activity& activity : timeline.activities) {
    if (activity.kind == Activity::Kind::hand_over) continue;
    const Unit& unit = timeline.units[static_cast<std::size_t>(activity.unit)];
    json += format("{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.1f, \"dur\": %.1f, ",
                   unit.block, activity.unit, activity.begin, activity.end - activity.begin) +
            "\"name\": \"" + escaped(timeline.names[static_cast<std::size_t>(activity.name)]) +
            "\"},\n";
  }
  json += format(
      "{\"ph\": \"i\", \"pid\": 0, \"tid\": 0, \"ts\": %.1f, \"s\": \"g\", \"name\": "
      "\"end\"}\n]}\n",
      timeline.clocks);
  return json;
}

std::string svg_page(const Timeline& timeline, const Window& window, const std::string& title) {
  constexpr double kWidth = 1500, kLeft = 190, kRow = 18, kTop = 46;
  const double scale = kWidth / (window.end - window.begin);
  std::string rows;
  int row = 0;
  for (std::size_t i = 0; i < timeline.units.size(); ++i) {
    const Unit& unit = timeline.units[i];
    // The schedulers of a block do the same; one stands for all.
    if (unit.block != 0 || unit.scheduler > 0) continue;
    const double y = kTop + kRow * row;
    std::string boxes;
    for (const Activity& activity : timeline.activities) {
      if (activity.unit != static_cast<int>(i) || activity.kind == Activity::Kind::hand_over ||
          activity.end <= window.begin || activity.begin >= window.end) {
        continue;
      }
      const double begin = std::max(activity.begin, window.begin);
      const double end = std::min(activity.end, window.end);
      const std::string& name = timeline.names[static_cast<std::size_t>(activity.name)];
      boxes += format("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\">",
                      kLeft + (begin - window.begin) * scale, y,
                      std::max(0.3, (end - begin) * scale), kRow - 4, colour(activity, name)) +
               "<title>" + escaped(name) +
               format(", clocks %.0f to %.0f</title></rect>\n", activity.begin, activity.end);
    }
    if (boxes.empty()) continue;
    rows += format("<text x=\"4\" y=\"%.1f\">", y + kRow - 7) + escaped(unit_label(unit)) +
            "</text>\n" + boxes;
    ++row;
  }
  std::string axis;
  constexpr int kTicks = 10;
  for (int i = 0; i <= kTicks; ++i) {
    const double clock = window.begin + (window.end - window.begin) * i / kTicks;
    axis += format("<text x=\"%.1f\" y=\"38\">%.0f</text>\n", kLeft + kWidth * i / kTicks, clock);
  }
  return format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
             "font-family=\"sans-serif\" font-size=\"11\">\n",
             kLeft + kWidth + 40, kTop + kRow * row + 10) +
         "<text x=\"4\" y=\"16\" font-size=\"14\">" + escaped(title) +
         ", clocks of block 0, one of four schedulers</text>\n" + axis + rows + "</svg>\n";
}

}  // namespace openvc::timing
