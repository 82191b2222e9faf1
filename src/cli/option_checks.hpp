// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Checks of options of the command line. Those of CLI11 let NaN and empty names pass,
/// and tell of a range in which the largest number of all has 309 digits.

#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include <fmt/format.h>

namespace pleat::cli {

/// \brief "expected a number above 0, got 'abc'".
/// \param sound  of the number \param kind  in the help, as "POSITIVE"
template <class Sound>
CLI::Validator number_check(std::string expected, std::string kind, Sound sound) {
  const auto complaint = [expected = std::move(expected),
                          sound](const std::string& text) -> std::string {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    const bool whole_text = !text.empty() && *end == '\0';
    if (whole_text && std::isfinite(number) && sound(number)) return "";
    return fmt::format("expected {}, got '{}'", expected, text);
  };
  return {complaint, std::move(kind)};
}

inline CLI::Validator above_zero() {
  return number_check("a number above 0", "POSITIVE", [](double x) { return x > 0.0; });
}

inline CLI::Validator zero_or_more() {
  return number_check("0 or a number above it", "NONNEGATIVE",
                      [](double x) { return x >= 0.0; });
}

/// \brief A share of something.
inline CLI::Validator above_zero_up_to_one() {
  return number_check("a number above 0, at most 1", "POSITIVE",
                      [](double x) { return x > 0.0 && x <= 1.0; });
}

inline CLI::Validator whole_above_zero() {
  return number_check("a whole number above 0", "POSITIVE",
                      [](double x) { return x > 0.0 && x == std::floor(x); });
}

inline CLI::Validator whole_zero_or_more() {
  return number_check("0 or a whole number above it", "NONNEGATIVE",
                      [](double x) { return x >= 0.0 && x == std::floor(x); });
}

/// \brief An empty one is what a shell makes of a variable that is not set.
inline CLI::Validator file_name() {
  const auto complaint = [](const std::string& text) -> std::string {
    return text.empty() ? "expected the name of a file, got ''" : "";
  };
  return {complaint, ""};
}

}  // namespace pleat::cli
