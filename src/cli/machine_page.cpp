// SPDX-License-Identifier: Apache-2.0
#include "machine_page.hpp"

#include <cstdio>

namespace pleat::cli {
namespace {

/// Of the seconds, what each part is given.
constexpr double kShareOfPeaks = 0.2;
constexpr double kShareOfKernels = 0.5;
constexpr double kShareOfExchanges = 0.3;

}  // namespace

MachinePage::MachinePage(comm::BackendKind wanted, const Runtime& runtime)
    : first_rank_(runtime.rank() == 0) {
  report_.answers = bench::compute_answers();
  const comm::BackendKind backend = comm::choose_backend(wanted, runtime.world());
  ranks_ = comm::make_communicator(runtime.world(), backend, "bench");
  report_.machine = bench::machine_facts(*ranks_, backend);
  bench::take_worst_of_ranks(report_.answers, *ranks_);
}

void MachinePage::show(Answers shown) const {
  print(bench::facts_text(report_.machine) +
        (shown == Answers::kAll ? bench::answers_table(report_.answers)
                                : bench::answers_summary(report_.answers)));
}

void MachinePage::measure_rates(const bench::Shape& shape, bench::Kernels kernels,
                                double seconds) {
  report_.peaks = bench::measure_peaks(*ranks_, kShareOfPeaks * seconds);
  report_.exchanges =
      bench::measure_exchanges(*ranks_, kShareOfExchanges * seconds, report_.peaks);
  print(bench::peaks_text(report_.peaks));
  report_.kernels = bench::measure_kernels(shape, kernels, report_.peaks, *ranks_,
                                           kShareOfKernels * seconds);
  print(bench::rates_table("kernels of " + shape.name, report_.kernels) +
        bench::rates_table("exchanges", report_.exchanges));
}

/// Shown at once: the next part takes its time.
void MachinePage::print(const std::string& text) const {
  if (!first_rank_) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace pleat::cli
