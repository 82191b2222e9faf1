// SPDX-License-Identifier: Apache-2.0
#include <cmath>

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

void read(const json& tree, Answer& answer) {
  tree.at("kernel").get_to(answer.kernel);
  tree.at("output").get_to(answer.output);
  tree.at("precision").get_to(answer.precision);
  tree.at("element").get_to(answer.element);
  answer.ulps = number_of(tree.at("ulps"), HUGE_VAL);
  tree.at("limit").get_to(answer.limit);
  const json& content = tree.at("content");
  for (std::size_t i = 0; i < answer.content.size(); ++i) {
    answer.content[i] = number_of(content.at(i), std::nan(""));
  }
}

void read(const json& tree, Peak& peak) {
  tree.at("name").get_to(peak.name);
  tree.at("rate").get_to(peak.rate);
  tree.at("unit").get_to(peak.unit);
}

void read(const json& tree, Rate& rate) {
  tree.at("name").get_to(rate.name);
  tree.at("precision").get_to(rate.precision);
  tree.at("shape").get_to(rate.shape);
  tree.at("seconds").get_to(rate.seconds);
  tree.at("work").get_to(rate.work);
  tree.at("unit").get_to(rate.unit);
  tree.at("peak").get_to(rate.peak);
  tree.at("share").get_to(rate.share);
}

void read(const json& tree, Fact& fact) {
  tree.at("name").get_to(fact.name);
  tree.at("value").get_to(fact.value);
}

template <class Item>
std::vector<Item> items_of(const json& tree, const char* key) {
  std::vector<Item> items;
  for (const json& item : tree.at(key)) read(item, items.emplace_back());
  return items;
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
    return {.machine = items_of<Fact>(tree, "machine"),
            .answers = items_of<Answer>(tree, "answers"),
            .peaks = items_of<Peak>(tree, "peaks"),
            .kernels = items_of<Rate>(tree, "kernels"),
            .exchanges = items_of<Rate>(tree, "exchanges")};
  } catch (const json::exception& error) {
    PLEAT_FAIL(InputError, "PL0960",
               "{} is a damaged report of 'pleat bench': {}\n"
               "HINT: write it again with 'pleat bench --json FILE'.",
               place, error.what());
  }
}

}  // namespace pleat::bench
