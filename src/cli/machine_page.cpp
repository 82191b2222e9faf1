// SPDX-License-Identifier: Apache-2.0
#include "machine_page.hpp"

namespace pleat::cli {

MachinePage::MachinePage(comm::BackendKind wanted, const Runtime& runtime)
    : answers_(bench::compute_answers()) {
  const comm::BackendKind backend = comm::choose_backend(wanted, runtime.world());
  ranks_ = comm::make_communicator(runtime.world(), backend, "bench");
  facts_ = bench::machine_facts(*ranks_, backend);
  bench::take_worst_of_ranks(answers_, *ranks_);
}

std::string MachinePage::text(Answers shown) const {
  return bench::facts_text(facts_) + (shown == Answers::kAll
                                          ? bench::answers_table(answers_)
                                          : bench::answers_summary(answers_));
}

}  // namespace pleat::cli
