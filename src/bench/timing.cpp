// SPDX-License-Identifier: Apache-2.0
#include "timing.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace pleat::bench {
namespace {

double seconds_of(const ExecSpace& exec, const std::function<void()>& run) {
  exec.fence("pleat::bench: before");
  const auto start = std::chrono::steady_clock::now();
  run();
  exec.fence("pleat::bench: after");
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count();
}

double slowest(comm::Communicator& ranks, double seconds) {
  return ranks.all_reduce_value(seconds, comm::Reduction::kMax);
}

}  // namespace

double best_seconds(const ExecSpace& exec, comm::Communicator& ranks, double budget,
                    const std::function<void()>& run) {
  constexpr int kFewest = 3;
  ranks.barrier();
  seconds_of(exec, run);
  double best = HUGE_VAL;
  double spent = 0.0;
  for (int i = 0; i < kFewest || spent < budget; ++i) {
    const double seconds = seconds_of(exec, run);
    best = std::min(best, seconds);
    spent += seconds;
  }
  return slowest(ranks, best);
}

double best_seconds_together(const ExecSpace& exec, comm::Communicator& ranks,
                             double budget, const std::function<void()>& run) {
  constexpr int kBlocks = 3;
  constexpr double kMost = 10000.0;
  run();  // the first one makes buffers and connections
  ranks.barrier();
  const double once = slowest(ranks, seconds_of(exec, run));
  const auto runs =
      static_cast<std::int64_t>(std::clamp(budget / (kBlocks * once), 1.0, kMost));
  double best = HUGE_VAL;
  for (int block = 0; block < kBlocks; ++block) {
    ranks.barrier();
    const double seconds = slowest(ranks, seconds_of(exec, [&] {
                                     for (std::int64_t i = 0; i < runs; ++i) run();
                                   }));
    best = std::min(best, seconds / static_cast<double>(runs));
  }
  return best;
}

}  // namespace pleat::bench
