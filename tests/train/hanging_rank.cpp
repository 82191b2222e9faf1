// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief A program that takes six steps under a watchdog of two seconds, and in which
/// one rank hangs in the third.
///
///     hanging_rank KIND RANK
///         none: no rank hangs; absent: the rank never enters the sum of the others;
///         receive: it waits for a message that no one sends; frozen: it does nothing at
///         all

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include <unistd.h>

#include "pleat/base/phase.hpp"
#include "pleat/base/runtime.hpp"
#include "pleat/comm/grid.hpp"
#include "pleat/train/watchdog.hpp"

namespace {

using pleat::Phase;
using pleat::PhaseScope;
using pleat::comm::GroupName;

class Job {
 public:
  Job(const pleat::Runtime& runtime, std::string kind, int which)
      : grid_(runtime.world(), {{}, runtime.ranks()}),
        kind_(std::move(kind)),
        mine_(which == grid_.rank()) {}

  int run() {
    pleat::train::Watchdog watchdog(2.0, rank(), [this] { return where(); });
    for (step_ = 1; step_ <= 6; ++step_) {
      take_step();
      watchdog.alive();
    }
    return 0;
  }

 private:
  std::string rank() const {
    const std::int64_t ranks = grid_.shape().ranks();
    return ranks == 1 ? "" : fmt::format("rank {} of {}", grid_.rank(), ranks);
  }
  std::string where() const {
    std::string text = fmt::format("in step {}", step_.load());
    if (const auto phase = times_.under_way()) {
      text += fmt::format(", phase {}", pleat::phase_name(*phase));
    }
    const std::string exchange = grid_.exchange_under_way();
    return exchange.empty() ? text : text + ", " + exchange;
  }

  void take_step() {
    const PhaseScope outer(times_, Phase::kExperts);
    {
      const PhaseScope inner(times_, Phase::kDispatch);
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      if (step_ == 3 && mine_ && kind_ == "receive") receive_nothing();
    }
    if (step_ == 3 && mine_ && kind_ == "frozen") std::raise(SIGSTOP);
    if (step_ == 3 && mine_ && kind_ == "absent") {
      while (true) pause();
    }
    const PhaseScope reduction(times_, Phase::kReduction);
    grid_.group(GroupName::kDataContext)
        .all_reduce_value(1.0, pleat::comm::Reduction::kSum);
  }

  void receive_nothing() {
    pleat::comm::Communicator& group = grid_.group(GroupName::kData);
    const pleat::HostView<double, 1> x_N("x", 4);
    group.receive(x_N, (group.rank() + 1) % group.size(), 7).wait();
  }

  pleat::comm::Grid grid_;
  std::string kind_;
  bool mine_;
  pleat::PhaseTimes times_;
  std::atomic<int> step_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  pleat::Runtime runtime(argc, argv);
  runtime.start_kokkos();
  return runtime.run([&] { return Job(runtime, argv[1], std::atoi(argv[2])).run(); });
}
