// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What marks a file as a report: written by report_json(), asked for by parse_report().

namespace pleat::bench {

inline constexpr const char* kReportKind = "pleat bench";
inline constexpr int kReportFormat = 1;

}  // namespace pleat::bench
