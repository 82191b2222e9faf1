// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What `pleat verify` and `pleat bench` say first: the machine, and whether its
/// kernels compute what they should.

#include <memory>
#include <string>
#include <vector>

#include "pleat/base/runtime.hpp"
#include "pleat/bench/report.hpp"

namespace pleat::cli {

/// \brief Runs the kernels on every rank; the worst rank counts. Alike on all ranks.
class MachinePage {
 public:
  enum class Answers { kSummary, kAll };

  /// \brief Collective over all ranks. \param wanted  parallel.backend
  MachinePage(comm::BackendKind wanted, const Runtime& runtime);

  std::string text(Answers shown) const;
  const std::vector<bench::Fact>& facts() const { return facts_; }
  const std::vector<bench::Answer>& answers() const { return answers_; }
  /// \brief All ranks, over the back end that was chosen.
  comm::Communicator& ranks() const { return *ranks_; }

 private:
  std::unique_ptr<comm::Communicator> ranks_;
  std::vector<bench::Fact> facts_;
  std::vector<bench::Answer> answers_;
};

}  // namespace pleat::cli
