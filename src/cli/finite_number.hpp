// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A check for options of the command line that are real numbers.

#include <cmath>
#include <cstdlib>
#include <string>

#include <CLI/CLI.hpp>

namespace pleat::cli {

/// \brief Goes with a range, since those of CLI11 let NaN pass; what is no number at all is
/// CLI11's to report.
inline CLI::Validator finite_number() {
  const auto complaint = [](const std::string& text) -> std::string {
    if (std::isfinite(std::strtod(text.c_str(), nullptr))) return "";
    return "expected a finite number, found " + text;
  };
  return CLI::Validator(complaint, "");
}

}  // namespace pleat::cli
