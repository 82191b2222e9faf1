// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What is known about a machine: as text, as JSON, and two of them side by side.

#include <string>
#include <string_view>
#include <vector>

#include "pleat/bench/answers.hpp"
#include "pleat/bench/rates.hpp"
#include "pleat/comm/backend_choice.hpp"

namespace pleat::bench {

struct Fact {
  std::string name;
  std::string value;
};

struct Report {
  std::vector<Fact> machine;
  std::vector<Answer> answers;
  std::vector<Peak> peaks;
  std::vector<Rate> kernels;
  std::vector<Rate> exchanges;
};

/// \brief What all ranks say where they agree, else "4 of a, 2 of b", in the order of the
/// ranks. Collective.
std::string fact_of_ranks(comm::Communicator& ranks, const std::string& mine);

/// \brief Program, hosts, devices, threads, and what multiplies and exchanges. Collective.
/// \param backend  of choose_backend()
std::vector<Fact> machine_facts(comm::Communicator& ranks, comm::BackendKind backend);

/// \brief Whether every answer is within its limit.
bool all_pass(const std::vector<Answer>& answers);

/// \name Parts of a page, each ending with a new line.
/// @{
std::string facts_text(const std::vector<Fact>& facts);
/// \brief The largest difference in each precision and whatever exceeds its limit.
std::string answers_summary(const std::vector<Answer>& answers);
/// \brief A row for each result, a column for each precision, then the summary.
std::string answers_table(const std::vector<Answer>& answers);
std::string peaks_text(const std::vector<Peak>& peaks);
/// \brief Nothing where there are no rates.
std::string rates_table(const std::string& title, const std::vector<Rate>& rates);
/// @}

/// \brief An object with members kind, format, machine, answers, peaks, kernels,
/// exchanges.
std::string report_json(const Report& report);

/// \brief The report that report_json() wrote. \param place  file name, for messages
/// \throws InputError PL0960 for what is no such report, or a damaged one
Report parse_report(std::string_view text, const std::string& place);

struct Comparison {
  std::string text;
  /// Every answer of both is within its limit, and none is missing; rates do not matter.
  bool correct = false;
};

/// \brief Two reports side by side: facts, answers in units in the last place
/// of each and between them, rates and their ratio. What is wrong or missing in either is told.
/// \throws InputError PL0961 where they have no answer in common
Comparison compare_reports(const Report& a, const Report& b);

}  // namespace pleat::bench
