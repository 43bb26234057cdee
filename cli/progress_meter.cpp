// SPDX-License-Identifier: BSD-3-Clause
#include "progress_meter.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace openvc::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kQuietTime = 1s;
constexpr auto kRedrawTime = 100ms;
constexpr auto kLineTime = 5s;
constexpr int kBarWidth = 28;

// Return to the start of the line and clear it.
constexpr const char* kClearLine = "\r\x1b[K";

}  // namespace

std::string clock_text(double seconds) {
  const auto all = static_cast<long>(std::ceil(seconds));
  const long hours = all / 3600;
  const long minutes = all / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, all % 60)
                   : fmt::format("{}:{:02}", minutes, all % 60);
}

ProgressMeter::ProgressMeter() : is_terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressMeter::~ProgressMeter() {
  if (bar_shown_) std::fputs(kClearLine, stderr);
}

void ProgressMeter::show(const study::Progress& progress) {
  const auto now = Clock::now();
  if (now - start_ < kQuietTime || now - last_ < (is_terminal_ ? kRedrawTime : kLineTime)) return;
  last_ = now;
  const int percent = static_cast<int>(100.0 * progress.fraction);
  const std::string left = clock_text(progress.seconds_left);
  std::string text;
  if (is_terminal_) {
    const int filled = static_cast<int>(kBarWidth * progress.fraction);
    text = fmt::format("{}[{:=<{}}{:{}}] {:3} %  {} left  {}", kClearLine, "", filled, "",
                       kBarWidth - filled, percent, left, progress.stage);
    bar_shown_ = true;
  } else {
    text = fmt::format("{:3} %, {} left: {}\n", percent, left, progress.stage);
  }
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace openvc::cli
