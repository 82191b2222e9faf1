// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "pleat/base/error.hpp"
#include "pleat/bench/report.hpp"
#include "pleat/io/json.hpp"
#include "report_format.hpp"

namespace pleat::bench {
namespace {

using nlohmann::json;

// No machine is slower or faster; what lies between is shown in a few digits, and so is the
// quotient of any two.
constexpr double kLeastRate = 1.0e-30;
constexpr double kLargestRate = 1.0e30;

/// What the parser takes and no report holds.
struct Damaged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A file from elsewhere may not move the cursor of a terminal.
std::string printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

/// What was found instead, in a few characters.
std::string found_text(const json& value) {
  constexpr std::size_t kMost = 40;
  if (value.is_structured())
    return fmt::format("{} of {}", value.is_array() ? "a list" : "an object", value.size());
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

/// A value of the file and where it stands: "answers, entry 3, content".
class Value {
 public:
  Value(const json& tree, std::string place) : tree_(&tree), place_(std::move(place)) {}

  Value member(const char* name) const {
    if (!tree_->is_object()) fail("an object");
    const auto found = tree_->find(name);
    const std::string place = place_.empty() ? name : fmt::format("{}, {}", place_, name);
    if (found == tree_->end()) throw Damaged(place + ": is missing");
    return {*found, place};
  }

  std::vector<Value> entries() const {
    if (!tree_->is_array()) fail("a list");
    std::vector<Value> values;
    for (const json& entry : *tree_)
      values.emplace_back(entry, fmt::format("{}, entry {}", place_, values.size() + 1));
    return values;
  }

  std::string text() const {
    if (!tree_->is_string()) fail("a text");
    return printable(tree_->get<std::string>());
  }

  std::string one_of(std::initializer_list<std::string_view> known) const {
    const std::string word = text();
    if (std::find(known.begin(), known.end(), word) == known.end())
      fail(fmt::format("one of {}", fmt::join(known, ", ")));
    return word;
  }

  double number() const {
    if (!tree_->is_number()) fail("a number");
    return tree_->get<double>();
  }

  /// JSON has no NaN and no infinity: they are written as null.
  double number_or(double if_null) const { return tree_->is_null() ? if_null : number(); }

  double positive() const {
    const double value = number();
    if (!(value > 0.0 && std::isfinite(value))) fail("a number above 0");
    return value;
  }

  void require_rate(double rate) const {
    if (rate >= kLeastRate && rate <= kLargestRate) return;
    throw Damaged(fmt::format("{}: expected a rate of {:.0e} to {:.0e}, found {:.1e}", place_,
                              kLeastRate, kLargestRate, rate));
  }

  [[noreturn]] void fail(const std::string& expected) const {
    const std::string found = printable(found_text(*tree_));
    throw Damaged(fmt::format("{}: expected {}, found {}", place_, expected, found));
  }

  const std::string& place() const { return place_; }

 private:
  const json* tree_;
  std::string place_;
};

std::string unit_of(const Value& value) { return value.one_of({"FLOP/s", "B/s"}); }

void read(const Value& tree, Answer& answer) {
  answer.kernel = tree.member("kernel").text();
  answer.output = tree.member("output").text();
  answer.precision = tree.member("precision").one_of({"fp64", "fp32", "bf16"});
  answer.element = tree.member("element").one_of({"fp64", "fp32", "bf16", "int"});
  answer.ulps = tree.member("ulps").number_or(HUGE_VAL);
  answer.limit = tree.member("limit").number();
  const Value content = tree.member("content");
  const std::vector<Value> numbers = content.entries();
  if (numbers.size() != answer.content.size())
    content.fail(fmt::format("a list of {} numbers", answer.content.size()));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    answer.content[i] = numbers[i].number_or(std::nan(""));
}

void read(const Value& tree, Peak& peak) {
  peak.name = tree.member("name").text();
  const Value rate = tree.member("rate");
  peak.rate = rate.positive();
  rate.require_rate(peak.rate);
  peak.unit = unit_of(tree.member("unit"));
}

void read(const Value& tree, Rate& rate) {
  rate.name = tree.member("name").text();
  rate.precision = tree.member("precision").text();
  rate.shape = tree.member("shape").text();
  rate.seconds = tree.member("seconds").positive();
  rate.work = tree.member("work").positive();
  rate.unit = unit_of(tree.member("unit"));
  rate.peak = tree.member("peak").text();
  rate.share = tree.member("share").number_or(0.0);
  tree.require_rate(rate.rate());
}

void read(const Value& tree, Fact& fact) {
  fact.name = tree.member("name").text();
  fact.value = tree.member("value").text();
}

/// \name By what two reports are paired, so what an entry of a list may be called once.
/// @{
std::string name_of(const Answer& x) {
  return fmt::format("{}, {}, in {} as {}", x.kernel, x.output, x.precision, x.element);
}
std::string name_of(const Rate& x) {
  return fmt::format("{}, {}, {}, in {}", x.name, x.precision, x.shape, x.unit);
}
std::string name_of(const Peak& x) { return x.name; }
std::string name_of(const Fact& x) { return x.name; }
/// @}

template <class Item>
std::vector<Item> items_of(const Value& tree, const char* key) {
  std::vector<Item> items;
  std::set<std::string> names;
  for (const Value& entry : tree.member(key).entries()) {
    read(entry, items.emplace_back());
    const std::string name = name_of(items.back());
    if (!names.insert(name).second)
      throw Damaged(fmt::format("{}: '{}' is there a second time", entry.place(), name));
  }
  return items;
}

Report report_of(const Value& tree) {
  return {.machine = items_of<Fact>(tree, "machine"),
          .answers = items_of<Answer>(tree, "answers"),
          .peaks = items_of<Peak>(tree, "peaks"),
          .kernels = items_of<Rate>(tree, "kernels"),
          .exchanges = items_of<Rate>(tree, "exchanges")};
}

[[noreturn]] void fail_as_damaged(const std::string& place, std::string_view reason) {
  PLEAT_FAIL(InputError, "PL0960",
             "'{}' is a damaged report of 'pleat bench': {}\n"
             "HINT: copy it again, or write it again with 'pleat bench --json FILE'.",
             place, reason);
}

/// A report that was cut off is no JSON any more.
json tree_of_file(std::string_view text, const std::string& place) {
  try {
    return io::parse_json(text, place);
  } catch (const InputError& error) {
    std::string_view reason = error.what();
    if (const auto id = reason.find(": "); id != reason.npos) reason.remove_prefix(id + 2);
    if (reason.starts_with(place)) reason.remove_prefix(place.size() + 1);
    fail_as_damaged(place, reason);
  }
}

}  // namespace

Report parse_report(std::string_view text, const std::string& place) {
  const json tree = tree_of_file(text, place);
  const bool ours = tree.value("kind", json()) == kReportKind &&
                    tree.value("format", json()) == kReportFormat;
  PLEAT_REQUIRE(ours, InputError, "PL0960",
                "'{}' is no report of 'pleat bench' in format {}\n"
                "HINT: 'pleat bench --portability --json FILE' writes one.",
                place, kReportFormat);
  try {
    return report_of({tree, ""});
  } catch (const Damaged& damage) {
    fail_as_damaged(place, damage.what());
  }
}

}  // namespace pleat::bench
