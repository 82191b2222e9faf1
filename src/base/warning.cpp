// SPDX-License-Identifier: Apache-2.0
#include "pleat/base/warning.hpp"

#include <cstdio>

#include <fmt/format.h>

namespace pleat {
namespace {

struct Speaker {
  int rank = 0;
  int ranks = 1;
};

/// Written once, before there are threads.
Speaker& speaker() {
  static Speaker of_process;
  return of_process;
}

}  // namespace

void warn(Concerns whom, const std::string& text) {
  const auto [rank, ranks] = speaker();
  if (whom == Concerns::kEveryRank && rank != 0) return;
  const bool is_named = whom == Concerns::kThisRank && ranks > 1;
  const std::string name = is_named ? fmt::format("rank {} of {}: ", rank, ranks) : "";
  fmt::print(stderr, "WARNING: {}{}\n", name, text);
  std::fflush(stderr);
}

void set_rank_of_warnings(int rank, int ranks) { speaker() = {rank, ranks}; }

}  // namespace pleat
