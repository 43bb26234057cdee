// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "study/error_study.hpp"

// A finished study in the three forms in which people and programs read it.
namespace openvc::study {

/// What the numbers belong to.
struct ReportHeader {
  std::string source{};   ///< file name or family
  std::string details{};  ///< more about it, one line; may be empty
  std::string note{};     ///< what limits the meaning of the numbers; may be empty
  std::string command{};  ///< how to make the report again; may be empty
};

/// Raised whenever a field of the JSON form changes its name or meaning.
inline constexpr int kReportSchemaVersion = 2;

/// JSON text. Numbers that are not finite become null.
[[nodiscard]] std::string report_json(const StudyResult& study, const ReportHeader& header);

/// Plain text for a terminal.
[[nodiscard]] std::string report_table(const StudyResult& study, const ReportHeader& header);

/// A page in one file, with plots, that needs neither scripts nor network.
[[nodiscard]] std::string report_html(const StudyResult& study, const ReportHeader& header);

}  // namespace openvc::study
