// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string_view>

namespace openvc::study {

struct Progress {
  double fraction = 0.0;      ///< of the whole work, 0..1
  double seconds_left = 0.0;  ///< estimate
  std::string_view stage;     ///< what runs now
};

/// Called now and then, by any thread of the work but never by two at once. It must not throw.
using ProgressCallback = std::function<void(const Progress&)>;

/// Counts finished work and estimates the rest from the time that it took.
class ProgressTracker {
 public:
  ProgressTracker(double total_work, ProgressCallback callback);

  /// `stage` must outlive the tracker.
  void begin(std::string_view stage);
  void advance(double work);

  [[nodiscard]] double seconds() const;

 private:
  void report();

  const double total_work_;
  const ProgressCallback callback_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  double done_ = 0.0;
  std::string_view stage_;
};

}  // namespace openvc::study
