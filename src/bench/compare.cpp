// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "page.hpp"
#include "pleat/base/error.hpp"
#include "pleat/bench/report.hpp"

namespace pleat::bench {
namespace {

/// What one kernel does in one precision, at worst.
struct KernelComparison {
  double a = 0.0;
  double b = 0.0;
  double between = 0.0;
};

/// A result, as far as one can say which: what two reports are paired by.
using ResultName = std::array<std::string, 4>;

ResultName name_of(const Answer& answer) {
  return {answer.kernel, answer.output, answer.precision, answer.element};
}

/// The same result in both reports, and what it is measured by.
struct AnswerPair {
  const Answer* a;
  const Answer* b;
  const StoredAnswer* stored;
};

/// Units in the last place, as told or, where that is more, as the content shows.
double told_or_shown(const StoredAnswer& stored, const Answer& answer) {
  return std::max(answer.ulps, difference_in_ulps(stored, answer.element, answer.content,
                                                  stored.content));
}

/// By this program's limit, whatever the file says.
bool is_correct(const StoredAnswer& stored, const Answer& answer) {
  return told_or_shown(stored, answer) <= limit_in_ulps(answer.element);
}

std::vector<AnswerPair> common_answers(const Report& a, const Report& b) {
  std::vector<AnswerPair> pairs;
  for (const Answer& x : a.answers) {
    const StoredAnswer* const stored = stored_answer_of(x);
    if (stored == nullptr) continue;
    const auto y = std::find_if(
        b.answers.begin(), b.answers.end(),
        [&](const Answer& other) { return name_of(other) == name_of(x); });
    if (y != b.answers.end()) pairs.push_back({&x, &*y, stored});
  }
  return pairs;
}

/// What is wrong in one report, whether or not the other has it; empty if nothing is.
std::string wrong_answers(const char* name, const Report& report) {
  std::string wrong;
  for (const Answer& answer : report.answers) {
    const StoredAnswer* const stored = stored_answer_of(answer);
    if (stored == nullptr || is_correct(*stored, answer)) continue;
    wrong += fmt::format(
        "  WRONG in {}: {}, {}, in {}: {} units in the last place of {}, "
        "{:.0f} allowed\n",
        name, answer.kernel, answer.output, answer.precision,
        ulps_text(told_or_shown(*stored, answer)), answer.element,
        limit_in_ulps(answer.element));
  }
  return wrong;
}

/// What a report lacks: a stored answer in any precision, or a result that the other has.
std::string missing_answers(const char* name, const Report& report, const Report& other) {
  std::set<const StoredAnswer*> found;
  std::set<ResultName> names;
  for (const Answer& answer : report.answers) {
    found.insert(stored_answer_of(answer));
    names.insert(name_of(answer));
  }
  std::size_t missing = 0;
  std::string first;
  const auto miss = [&](const std::string& what) {
    if (missing++ == 0) first = what;
  };
  for (const StoredAnswer& stored : stored_answers()) {
    if (!found.contains(&stored)) miss(fmt::format("{}, {}", stored.kernel, stored.output));
  }
  for (const Answer& answer : other.answers) {
    if (names.contains(name_of(answer)) || !found.contains(stored_answer_of(answer))) continue;
    miss(fmt::format("{}, {}, in {}", answer.kernel, answer.output, answer.precision));
  }
  if (missing == 0) return {};
  return fmt::format("  MISSING in {}: {} results, the first of them {}\n", name, missing,
                     first);
}

std::string facts_comparison(const Report& a, const Report& b) {
  std::string text = "machines\n";
  for (const Fact& fact : a.machine) {
    const auto other = std::find_if(b.machine.begin(), b.machine.end(),
                                    [&](const Fact& f) { return f.name == fact.name; });
    const std::string theirs = other == b.machine.end() ? "-" : other->value;
    if (theirs == fact.value) {
      text += fmt::format("  {:<14} both  {}\n", fact.name, fact.value);
    } else {
      text += fmt::format("  {:<14} A     {}\n  {:<14} B     {}\n", fact.name, fact.value,
                          "", theirs);
    }
  }
  return text;
}

std::string answers_comparison(const std::vector<AnswerPair>& pairs) {
  std::vector<std::pair<std::string, std::string>> order;
  std::map<std::pair<std::string, std::string>, KernelComparison> kernels;
  for (const auto& [a, b, stored] : pairs) {
    const std::pair key(a->kernel, a->precision);
    if (!kernels.contains(key)) order.push_back(key);
    KernelComparison& kernel = kernels[key];
    kernel.a = std::max(kernel.a, told_or_shown(*stored, *a));
    kernel.b = std::max(kernel.b, told_or_shown(*stored, *b));
    kernel.between = std::max(
        kernel.between, difference_in_ulps(*stored, a->element, a->content, b->content));
  }
  std::string text = fmt::format("{:<30} {:>10} {:>10} {:>10}\n",
                                 "units in the last place", "A", "B", "A from B");
  for (const auto& key : order) {
    const KernelComparison& kernel = kernels[key];
    text +=
        fmt::format("  {:<20} {:<7} {:>10} {:>10} {:>10}\n", key.first, key.second,
                    ulps_text(kernel.a), ulps_text(kernel.b), ulps_text(kernel.between));
  }
  return text;
}

std::string peaks_comparison(const Report& a, const Report& b) {
  std::string text = fmt::format("{:<65} {:>16} {:>16} {:>8}\n",
                                 "measured peaks of a rank", "A", "B", "B / A");
  for (const Peak& peak : a.peaks) {
    const double theirs = peak_of(b.peaks, peak.name);
    if (theirs == 0.0) continue;  // not measured there
    text += fmt::format("  {:<63} {:>16} {:>16} {:>8.2f}\n", peak.name,
                        rate_text(peak.rate, peak.unit), rate_text(theirs, peak.unit),
                        theirs / peak.rate);
  }
  return text;
}

/// Those of the same name, precision and size.
std::string rates_comparison(const char* title, const std::vector<Rate>& a,
                             const std::vector<Rate>& b) {
  std::string text;
  std::size_t common = 0;
  for (const Rate& rate : a) {
    const auto other = std::find_if(b.begin(), b.end(), [&](const Rate& r) {
      return r.name == rate.name && r.precision == rate.precision &&
             r.shape == rate.shape && r.unit == rate.unit;
    });
    if (other == b.end()) continue;
    ++common;
    text +=
        fmt::format("  {:<30} {:<5} {:<26} {:>16} {:>16} {:>8.2f}\n", rate.name,
                    rate.precision, rate.shape, rate_text(rate.rate(), rate.unit),
                    rate_text(other->rate(), other->unit), other->rate() / rate.rate());
  }
  const std::size_t alone = a.size() + b.size() - 2 * common;
  if (alone > 0)
    text += fmt::format("  ({} were measured on one of them alone)\n", alone);
  return text.empty() ? "" : fmt::format("{}\n{}", title, text);
}

}  // namespace

Comparison compare_reports(const Report& a, const Report& b) {
  const std::vector<AnswerPair> pairs = common_answers(a, b);
  PLEAT_REQUIRE(!pairs.empty(), InputError, "PL0961",
                "the two reports have no result in common that this program knows\n"
                "HINT: write both with the same version of 'pleat bench --json FILE'.");
  const std::string wrong = wrong_answers("A", a) + wrong_answers("B", b);
  const std::string missing = missing_answers("A", a, b) + missing_answers("B", b, a);
  std::string text = facts_comparison(a, b) + answers_comparison(pairs) + wrong + missing;
  text += peaks_comparison(a, b) + rates_comparison("kernels", a.kernels, b.kernels) +
          rates_comparison("exchanges", a.exchanges, b.exchanges);
  const char* verdict = "CORRECT on both";
  if (!missing.empty()) verdict = "INCOMPLETE";
  if (!wrong.empty()) verdict = "WRONG";
  text += fmt::format("{}: {} results in common\n", verdict, pairs.size());
  return {std::move(text), wrong.empty() && missing.empty()};
}

}  // namespace pleat::bench
