// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string_view>

namespace openvc::study {

struct Progress {
  double fraction = 0.0;      ///< of the whole work, 0..1
  double seconds_left = 0.0;  ///< estimate
  std::string_view stage;     ///< what runs now
};

/// Called now and then, from the thread that called the study.
using ProgressCallback = std::function<void(const Progress&)>;

}  // namespace openvc::study
