// SPDX-License-Identifier: Apache-2.0
#include "page.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "pleat/bench/report.hpp"

namespace pleat::bench {
namespace {

constexpr std::array<const char*, 3> kPrecisions{"fp64", "fp32", "bf16"};

/// The answer in that precision; null where the kernel has none.
const Answer* find_answer(const std::vector<Answer>& answers, const Answer& like,
                          const std::string& precision) {
  const auto found =
      std::find_if(answers.begin(), answers.end(), [&](const Answer& answer) {
        return answer.kernel == like.kernel && answer.output == like.output &&
               answer.precision == precision;
      });
  return found == answers.end() ? nullptr : &*found;
}

/// "0.51", with the type where it is not that of the column.
std::string answer_cell(const Answer* answer) {
  if (answer == nullptr) return "-";
  const std::string type =
      answer->element == answer->precision ? "" : " " + answer->element;
  return fmt::format("{}{}{}", ulps_text(answer->ulps), type,
                     answer->passes() ? "" : " WRONG");
}

/// The value in (1, 1000] of some power of 1000, and its prefix.
std::pair<double, char> with_prefix(double value) {
  constexpr std::array<char, 6> kPrefixes{' ', 'k', 'M', 'G', 'T', 'P'};
  std::size_t power = 0;
  while (value >= 1000.0 && power + 1 < kPrefixes.size()) {
    value /= 1000.0;
    ++power;
  }
  return {value, kPrefixes[power]};
}

}  // namespace

std::string rate_text(double rate, const std::string& unit) {
  const auto [value, prefix] = with_prefix(rate);
  return fmt::format("{:.1f} {}{}", value, prefix == ' ' ? "" : std::string(1, prefix),
                     unit);
}

std::string seconds_text(double seconds) {
  if (seconds < 1.0e-3) return fmt::format("{:.2f} us", 1.0e6 * seconds);
  if (seconds < 1.0) return fmt::format("{:.2f} ms", 1.0e3 * seconds);
  return fmt::format("{:.2f} s", seconds);
}

std::string ulps_text(double ulps) {
  const bool short_enough = ulps < 1.0e6 || !std::isfinite(ulps);
  return short_enough ? fmt::format("{:.2f}", ulps) : fmt::format("{:.1e}", ulps);
}

std::string facts_text(const std::vector<Fact>& facts) {
  std::string text = "machine\n";
  for (const Fact& fact : facts)
    text += fmt::format("  {:<14} {}\n", fact.name, fact.value);
  return text;
}

bool all_pass(const std::vector<Answer>& answers) {
  return std::all_of(answers.begin(), answers.end(),
                     [](const Answer& answer) { return answer.passes(); });
}

std::string answers_summary(const std::vector<Answer>& answers) {
  std::string text =
      "kernels against stored answers, in units in the last place of their type\n";
  for (const char* const element : {"fp64", "fp32", "bf16", "int"}) {
    const Answer* worst = nullptr;
    std::size_t count = 0;
    for (const Answer& answer : answers) {
      if (answer.element != element) continue;
      ++count;
      if (worst == nullptr || !(answer.ulps <= worst->ulps)) worst = &answer;
    }
    if (worst == nullptr) continue;
    text += fmt::format("  {:<5} {:3} results  at most {} of {:.0f} allowed ({}, {})\n",
                        element, count, ulps_text(worst->ulps), worst->limit,
                        worst->kernel, worst->output);
  }
  for (const Answer& answer : answers) {
    if (answer.passes()) continue;
    text += fmt::format(
        "  WRONG: {}, {}, in {}: {} units in the last place of {}, {:.0f} "
        "allowed\n",
        answer.kernel, answer.output, answer.precision, ulps_text(answer.ulps),
        answer.element, answer.limit);
  }
  return text;
}

std::string answers_table(const std::vector<Answer>& answers) {
  std::string text = fmt::format("{:<36} {:>12} {:>12} {:>12}\n", "kernel, result",
                                 kPrecisions[0], kPrecisions[1], kPrecisions[2]);
  for (const Answer& answer : answers) {
    // A row begins with the first precision in which there is such a result.
    const char* const* const first =
        std::find_if(kPrecisions.begin(), kPrecisions.end(), [&](const char* precision) {
          return find_answer(answers, answer, precision) != nullptr;
        });
    if (first == kPrecisions.end() || answer.precision != *first) continue;
    text += fmt::format("  {:<34}", answer.kernel + ", " + answer.output);
    for (const char* const precision : kPrecisions) {
      text +=
          fmt::format(" {:>12}", answer_cell(find_answer(answers, answer, precision)));
    }
    text += "\n";
  }
  return text + answers_summary(answers);
}

std::string peaks_text(const std::vector<Peak>& peaks) {
  std::string text = "measured peaks of a rank\n";
  for (const Peak& peak : peaks) {
    text += fmt::format("  {:<14} {:>16}\n", peak.name, rate_text(peak.rate, peak.unit));
  }
  return text;
}

std::string rates_table(const std::string& title, const std::vector<Rate>& rates) {
  if (rates.empty()) return "";
  std::string text = fmt::format("{:<30} {:<5} {:<26} {:>10} {:>15}  {}\n", title, "",
                                 "size", "time", "rate", "of the peak");
  for (const Rate& rate : rates) {
    text += fmt::format("  {:<28} {:<5} {:<26} {:>10} {:>15} {:5.0f} % {}\n", rate.name,
                        rate.precision, rate.shape, seconds_text(rate.seconds),
                        rate_text(rate.rate(), rate.unit), 100.0 * rate.share, rate.peak);
  }
  return text;
}

}  // namespace pleat::bench
