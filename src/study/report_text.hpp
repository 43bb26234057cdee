// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "study/error_study.hpp"

// Numbers and phrases as the reports print them.
namespace openvc::study {

/// `text` as valid UTF-8: what is not, in a file name say, becomes U+FFFD.
[[nodiscard]] std::string valid_text(std::string_view text);

/// The same, with spaces in the place of control characters and of what markup may not hold.
[[nodiscard]] std::string printable(std::string_view text);

/// A share in percent with three significant digits: "12.3 %", "0.0457 %".
[[nodiscard]] std::string percent(double share);

/// A share in percent that is known exactly, such as a budget: "0.5 %".
[[nodiscard]] std::string exact_percent(double share);

/// An integer with thousands separators.
[[nodiscard]] std::string grouped(std::int64_t number);

/// "2,520 queries x 2,520 keys x 2 heads, bfloat16".
[[nodiscard]] std::string shape_phrase(const StudyResult& study, std::string_view times);

/// "3", or "1/3" for head 3 of batch entry 1 where there are several.
[[nodiscard]] std::string short_head_name(const StudyResult& study, std::size_t index);

/// "16 residual channels, rotated": what a plan does beyond plain quantisation; "plain" if nothing.
[[nodiscard]] std::string plan_phrase(const HeadPlan& plan);

}  // namespace openvc::study
