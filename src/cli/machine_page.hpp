// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The page about a machine of `pleat verify` and `pleat bench`: what it is, whether its
/// kernels compute what they should, and how fast.

#include <memory>
#include <string>

#include "pleat/base/runtime.hpp"
#include "pleat/bench/rates.hpp"
#include "pleat/bench/report.hpp"

namespace pleat::cli {

/// \brief Runs the kernels on every rank; the worst rank counts. Alike on all ranks.
class MachinePage {
 public:
  enum class Answers { kSummary, kAll };

  /// \brief Collective over all ranks. \param wanted  parallel.backend
  MachinePage(comm::BackendKind wanted, const Runtime& runtime);

  /// \brief Prints the facts and the results of the kernels, on the first rank.
  void show(Answers shown) const;

  /// \brief Measures and prints peaks, kernels and exchanges; about so many seconds.
  /// Collective over all ranks.
  void measure_rates(const bench::Shape& shape, bench::Kernels kernels, double seconds);

  bool right_kernels() const { return bench::all_pass(report_.answers); }
  /// \brief Facts and answers, and the rates that were measured.
  const bench::Report& report() const { return report_; }

 private:
  void print(const std::string& text) const;

  bool first_rank_;
  std::unique_ptr<comm::Communicator> ranks_;  // over the back end that was chosen
  bench::Report report_;
};

}  // namespace pleat::cli
