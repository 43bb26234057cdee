// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <string>

#include "study/progress.hpp"

namespace openvc::cli {

/// "0:07", "12:34", "2:03:04".
[[nodiscard]] std::string clock_text(double seconds);

/// Shows progress on standard error: a bar where that is a terminal, else a line every few seconds.
/// Work of less than a second shows nothing.
class ProgressMeter {
 public:
  ProgressMeter();
  ~ProgressMeter();
  ProgressMeter(const ProgressMeter&) = delete;
  ProgressMeter& operator=(const ProgressMeter&) = delete;

  void show(const study::Progress& progress);

  /// For study::StudyOptions; the meter must outlive the work.
  [[nodiscard]] study::ProgressCallback callback() {
    return [this](const study::Progress& progress) { show(progress); };
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool is_terminal_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
  bool bar_shown_ = false;
};

}  // namespace openvc::cli
