// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/watchdog.hpp"

#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "pleat/base/error.hpp"

namespace pleat::train {
namespace {

/// The ranks of a hanging job come to this within about a step of each other, and
/// launchers drop what they have not yet read of the others when the first one ends the
/// job.
constexpr std::chrono::seconds kTimeForOthers{2};
/// The end of a process that cannot even print.
constexpr unsigned kLastResortSeconds = 7;

}  // namespace

Watchdog::Watchdog(double seconds, std::string rank, Where where)
    : seconds_(seconds), rank_(std::move(rank)), where_(std::move(where)) {
  if (seconds_ > 0) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::alive() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ++signs_;
  }
  changed_.notify_one();
}

Watchdog::Place::Place(Watchdog& watchdog, Where where)
    : watchdog_(watchdog), outer_(watchdog.exchange_where(std::move(where))) {}

Watchdog::Place::~Place() { watchdog_.exchange_where(std::move(outer_)); }

// Waits for a bark that is under way, and so for the end of the job: nothing goes away
// that where_() reads.
Watchdog::Where Watchdog::exchange_where(Where where) {
  const std::lock_guard lock(mutex_);
  return std::exchange(where_, std::move(where));
}

void Watchdog::watch() {
  const std::chrono::duration<double> patience(seconds_);
  std::unique_lock lock(mutex_);
  while (!ending_) {
    const std::uint64_t seen = signs_;
    const bool woken =
        changed_.wait_for(lock, patience, [&] { return ending_ || signs_ != seen; });
    if (!woken) bark();
  }
}

// One call of write, so that the lines of several ranks do not mix. Then what nobody
// catches ends the job, with one message for all ranks.
void Watchdog::bark() {
  alarm(kLastResortSeconds);
  const std::string line = fmt::format("pleat: {}{}no step for {} s: {}\n", rank_,
                                       rank_.empty() ? "" : ": ", seconds_, where_());
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
  std::this_thread::sleep_for(kTimeForOthers);
  PLEAT_FAIL(
      InternalError, "PL0733",
      "the job hangs: no step for {} s (run.watchdog); each rank says above where it is\n"
      "HINT: the rank that is in no exchange, or in another one than the rest, or is "
      "silent, keeps them waiting: look at its node. If steps may take as long, raise "
      "run.watchdog.",
      seconds_);
}

}  // namespace pleat::train
