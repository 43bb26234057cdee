// SPDX-License-Identifier: BSD-3-Clause
#include "study/progress.hpp"

#include <algorithm>
#include <utility>

namespace openvc::study {

ProgressTracker::ProgressTracker(double total_work, ProgressCallback callback)
    : total_work_(total_work), callback_(std::move(callback)) {}

void ProgressTracker::begin(std::string_view stage) {
  const std::scoped_lock lock(mutex_);
  stage_ = stage;
  report();
}

void ProgressTracker::advance(double work) {
  const std::scoped_lock lock(mutex_);
  done_ += work;
  report();
}

double ProgressTracker::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void ProgressTracker::report() {
  if (!callback_) return;
  const double fraction = total_work_ > 0.0 ? std::min(done_ / total_work_, 1.0) : 1.0;
  const double left = fraction > 0.0 ? seconds() * (1.0 - fraction) / fraction : 0.0;
  callback_({.fraction = fraction, .seconds_left = left, .stage = stage_});
}

}  // namespace openvc::study
