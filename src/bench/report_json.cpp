// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <nlohmann/json.hpp>

#include "pleat/bench/report.hpp"
#include "report_format.hpp"

namespace pleat::bench {
namespace {

using nlohmann::ordered_json;

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

}  // namespace

std::string report_json(const Report& report) {
  const ordered_json tree{{"kind", kReportKind},
                          {"format", kReportFormat},
                          {"machine", list_of(report.machine)},
                          {"answers", list_of(report.answers)},
                          {"peaks", list_of(report.peaks)},
                          {"kernels", list_of(report.kernels)},
                          {"exchanges", list_of(report.exchanges)}};
  return tree.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace pleat::bench
