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

namespace pleat::bench {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kKind = "pleat bench";
constexpr int kFormat = 1;

/// What the parser takes and no report holds.
struct Damaged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

ordered_json tree_of(const Answer& answer) {
  return {{"kernel", answer.kernel},       {"output", answer.output},
          {"precision", answer.precision}, {"element", answer.element},
          {"ulps", answer.ulps},           {"limit", answer.limit},
          {"content", answer.content}};
}

ordered_json tree_of(const Peak& peak) {
  return {{"name", peak.name}, {"rate", peak.rate}, {"unit", peak.unit}};
}

ordered_json tree_of(const Rate& rate) {
  return {{"name", rate.name},       {"precision", rate.precision}, {"shape", rate.shape},
          {"seconds", rate.seconds}, {"work", rate.work},           {"unit", rate.unit},
          {"peak", rate.peak},       {"share", rate.share}};
}

ordered_json tree_of(const Fact& fact) {
  return {{"name", fact.name}, {"value", fact.value}};
}

template <class Items>
ordered_json list_of(const Items& items) {
  ordered_json list = ordered_json::array();
  for (const auto& item : items) list.push_back(tree_of(item));
  return list;
}

/// JSON has no NaN and no infinity: they are written as null.
double number_of(const json& value, double if_null) {
  return value.is_null() ? if_null : value.get<double>();
}

/// A file from elsewhere may not move the cursor of a terminal.
std::string text_of(const json& value) {
  auto text = value.get<std::string>();
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

std::string one_of(const json& value, std::initializer_list<std::string_view> known) {
  auto text = text_of(value);
  if (std::find(known.begin(), known.end(), text) == known.end())
    throw Damaged(fmt::format("'{}' is none of {}", text, fmt::join(known, ", ")));
  return text;
}

double positive(const json& value) {
  const double number = value.get<double>();
  if (!(number > 0.0 && std::isfinite(number)))
    throw Damaged(fmt::format("{} where a positive number is expected", number));
  return number;
}

std::string unit_of(const json& value) { return one_of(value, {"FLOP/s", "B/s"}); }

void read(const json& tree, Answer& answer) {
  answer.kernel = text_of(tree.at("kernel"));
  answer.output = text_of(tree.at("output"));
  answer.precision = one_of(tree.at("precision"), {"fp64", "fp32", "bf16"});
  answer.element = one_of(tree.at("element"), {"fp64", "fp32", "bf16", "int"});
  answer.ulps = number_of(tree.at("ulps"), HUGE_VAL);
  tree.at("limit").get_to(answer.limit);
  const json& content = tree.at("content");
  for (std::size_t i = 0; i < answer.content.size(); ++i) {
    answer.content[i] = number_of(content.at(i), std::nan(""));
  }
}

void read(const json& tree, Peak& peak) {
  peak.name = text_of(tree.at("name"));
  peak.rate = positive(tree.at("rate"));
  peak.unit = unit_of(tree.at("unit"));
}

void read(const json& tree, Rate& rate) {
  rate.name = text_of(tree.at("name"));
  rate.precision = text_of(tree.at("precision"));
  rate.shape = text_of(tree.at("shape"));
  rate.seconds = positive(tree.at("seconds"));
  rate.work = positive(tree.at("work"));
  rate.unit = unit_of(tree.at("unit"));
  rate.peak = text_of(tree.at("peak"));
  tree.at("share").get_to(rate.share);
}

void read(const json& tree, Fact& fact) {
  fact.name = text_of(tree.at("name"));
  fact.value = text_of(tree.at("value"));
}

template <class Item>
std::vector<Item> items_of(const json& tree, const char* key) {
  std::vector<Item> items;
  for (const json& item : tree.at(key)) read(item, items.emplace_back());
  return items;
}

void require_each_once(const std::vector<Answer>& answers) {
  std::set<std::array<std::string, 4>> names;
  for (const Answer& x : answers) {
    if (!names.insert({x.kernel, x.output, x.precision, x.element}).second)
      throw Damaged(fmt::format("{}, {}, in {} is there twice", x.kernel, x.output,
                                x.precision));
  }
}

Report report_of(const json& tree) {
  Report report{.machine = items_of<Fact>(tree, "machine"),
                .answers = items_of<Answer>(tree, "answers"),
                .peaks = items_of<Peak>(tree, "peaks"),
                .kernels = items_of<Rate>(tree, "kernels"),
                .exchanges = items_of<Rate>(tree, "exchanges")};
  require_each_once(report.answers);
  return report;
}

}  // namespace

std::string report_json(const Report& report) {
  const ordered_json tree{{"kind", kKind},
                          {"format", kFormat},
                          {"machine", list_of(report.machine)},
                          {"answers", list_of(report.answers)},
                          {"peaks", list_of(report.peaks)},
                          {"kernels", list_of(report.kernels)},
                          {"exchanges", list_of(report.exchanges)}};
  return tree.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Report parse_report(std::string_view text, const std::string& place) {
  const json tree = io::parse_json(text, place);
  const bool ours =
      tree.value("kind", json()) == kKind && tree.value("format", json()) == kFormat;
  PLEAT_REQUIRE(ours, InputError, "PL0960",
                "{} is no report of 'pleat bench' in format {}\n"
                "HINT: 'pleat bench --portability --json FILE' writes one.",
                place, kFormat);
  try {
    return report_of(tree);
  } catch (const std::exception& error) {  // of the parser, or Damaged
    PLEAT_FAIL(InputError, "PL0960",
               "{} is a damaged report of 'pleat bench': {}\n"
               "HINT: write it again with 'pleat bench --json FILE'.",
               place, error.what());
  }
}

}  // namespace pleat::bench
