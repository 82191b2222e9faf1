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

/// The entry of the same kind in the other report; null where it has none.
template <class Item, class Same>
const Item* partner_of(const Item& item, const std::vector<Item>& others, const Same& same) {
  const auto found = std::find_if(others.begin(), others.end(),
                                  [&](const Item& other) { return same(item, other); });
  return found == others.end() ? nullptr : &*found;
}

/// One row for each entry of either: those of A in its order, with their partners, then those
/// of B alone.
template <class Item, class Same>
std::vector<std::pair<const Item*, const Item*>> paired(const std::vector<Item>& a,
                                                        const std::vector<Item>& b,
                                                        const Same& same) {
  std::vector<std::pair<const Item*, const Item*>> pairs;
  for (const Item& x : a) pairs.emplace_back(&x, partner_of(x, b, same));
  for (const Item& y : b) {
    if (partner_of(y, a, same) == nullptr) pairs.emplace_back(nullptr, &y);
  }
  return pairs;
}

std::string facts_comparison(const Report& a, const Report& b) {
  std::string text = "machines\n";
  const auto same_name = [](const Fact& x, const Fact& y) { return x.name == y.name; };
  for (const auto& [x, y] : paired(a.machine, b.machine, same_name)) {
    const std::string& name = x != nullptr ? x->name : y->name;
    if (x != nullptr && y != nullptr && x->value == y->value) {
      text += fmt::format("  {:<14} both  {}\n", name, x->value);
    } else {
      text += fmt::format("  {:<14} A     {}\n  {:<14} B     {}\n", name,
                          x != nullptr ? x->value : "-", "", y != nullptr ? y->value : "-");
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

std::string peak_text(const Peak* peak) {
  return peak == nullptr ? "-" : rate_text(peak->rate, peak->unit);
}

/// A peak that one of them lacks, or has in another unit, stands alone.
std::string peaks_comparison(const Report& a, const Report& b) {
  std::string text = fmt::format("{:<65} {:>16} {:>16} {:>8}\n",
                                 "measured peaks of a rank", "A", "B", "B / A");
  const auto same = [](const Peak& x, const Peak& y) {
    return x.name == y.name && x.unit == y.unit;
  };
  for (const auto& [x, y] : paired(a.peaks, b.peaks, same)) {
    const bool both = x != nullptr && y != nullptr;
    text += fmt::format("  {:<63} {:>16} {:>16} {:>8}\n", x != nullptr ? x->name : y->name,
                        peak_text(x), peak_text(y),
                        both ? fmt::format("{:.2f}", y->rate / x->rate) : "-");
  }
  return text;
}

/// Those of the same name, precision and size; the others are counted.
std::string rates_comparison(const char* title, const std::vector<Rate>& a,
                             const std::vector<Rate>& b) {
  std::string text;
  std::size_t alone = 0;
  const auto same = [](const Rate& x, const Rate& y) {
    return x.name == y.name && x.precision == y.precision && x.shape == y.shape &&
           x.unit == y.unit;
  };
  for (const auto& [x, y] : paired(a, b, same)) {
    if (x == nullptr || y == nullptr) {
      ++alone;
      continue;
    }
    text += fmt::format("  {:<30} {:<5} {:<26} {:>16} {:>16} {:>8.2f}\n", x->name,
                        x->precision, x->shape, rate_text(x->rate(), x->unit),
                        rate_text(y->rate(), y->unit), y->rate() / x->rate());
  }
  if (alone > 0)
    text += fmt::format("  ({} measured on one of them alone)\n", alone);
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
