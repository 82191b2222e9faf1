// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/watchdog.hpp"

#include <chrono>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "pleat/base/error.hpp"

namespace pleat::train {
namespace {

/// The ranks of a hanging job come to this within about a step of each other, and
/// launchers end the others, and drop what they have not yet read, when the first one
/// exits.
constexpr std::chrono::seconds kTimeForOthers{3};
/// The end of a process that cannot even print.
constexpr unsigned kLastResortSeconds = 8;

}  // namespace

Watchdog::Watchdog(double seconds, std::string rank, std::function<std::string()> where)
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

// One call of write, so that the lines of several ranks do not mix.
void Watchdog::bark() {
  alarm(kLastResortSeconds);
  const std::string line = fmt::format("pleat: {}{}PL0733: no step for {} s: {}\n", rank_,
                                       rank_.empty() ? "" : ": ", seconds_, where_());
  static_cast<void>(!write(STDERR_FILENO, line.data(), line.size()));
  std::this_thread::sleep_for(kTimeForOthers);
  std::_Exit(static_cast<int>(ExitCode::kInternal));
}

}  // namespace pleat::train
