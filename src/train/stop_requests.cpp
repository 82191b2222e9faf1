// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/stop_requests.hpp"

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include <unistd.h>

#include "pleat/base/error.hpp"

namespace pleat::train {
namespace {

constexpr std::array kSignals{SIGTERM, SIGUSR1};

/// Apart by less, two signals are the same request on two ways.
constexpr std::int64_t kTogetherNanoseconds = 1'000'000'000;

std::int64_t monotonic_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// When the first signal came; 0: none has. The one variable outside of objects: a signal
/// handler is given nothing but the number of the signal.
std::atomic<std::int64_t> first_signal{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

/// Calls only what POSIX allows in a signal handler.
void on_signal(int number) {
  const int interrupted_errno = errno;
  const std::int64_t now = monotonic_nanoseconds();
  std::int64_t first = 0;
  if (!first_signal.compare_exchange_strong(first, now) &&
      now - first > kTogetherNanoseconds) {
    std::signal(number, SIG_DFL);
    std::raise(number);  // takes effect when the handler returns
  }
  errno = interrupted_errno;
}

std::array<struct sigaction, 2> take_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : kSignals) sigaddset(&action.sa_mask, number);
  std::array<struct sigaction, 2> earlier{};
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &earlier[i]);
    PLEAT_ASSERT(earlier[i].sa_handler != on_signal, "stop requests are taken twice");
  }
  return earlier;
}

/// Ticks from boot to the start of this process; 0 where the kernel does not tell.
double start_ticks() {
  std::ifstream file("/proc/self/stat");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  // The second field, a name in parentheses, may hold anything; the start is the 22nd.
  std::size_t at = text.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) {
    at = text.find(' ', at + 1);
  }
  return at == std::string::npos ? 0.0 : std::strtod(text.c_str() + at, nullptr);
}

double seconds_since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Since the start of the process, so that what comes before training counts.
double seconds_running() {
  static const double kStart = [] {
    const double start = start_ticks() / static_cast<double>(sysconf(_SC_CLK_TCK));
    const double now = seconds_since_boot();
    return start > 0.0 && start <= now ? start : now;
  }();
  return seconds_since_boot() - kStart;
}

std::optional<double> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  std::int64_t number = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, number);
  if (error != std::errc() || stop != end || number <= 0) return std::nullopt;
  return static_cast<double>(number);
}

/// Reads off the front of a wall limit.
class TimeText {
 public:
  explicit TimeText(std::string_view text) : text_(text) {}

  bool empty() const { return text_.empty(); }
  /// Digits; nothing where there are none or too many.
  std::optional<std::int64_t> number() {
    constexpr std::int64_t kLargest = 1'000'000'000'000;
    std::int64_t number = 0;
    const char* end = text_.data() + text_.size();
    if (text_.empty() || text_.front() < '0' || text_.front() > '9') return std::nullopt;
    const auto [stop, error] = std::from_chars(text_.data(), end, number);
    if (error != std::errc() || number > kLargest) return std::nullopt;
    text_.remove_prefix(static_cast<std::size_t>(stop - text_.data()));
    return number;
  }
  bool take(char character) {
    if (text_.empty() || text_.front() != character) return false;
    text_.remove_prefix(1);
    return true;
  }

 private:
  std::string_view text_;
};

struct Unit {
  char letter;
  std::int64_t seconds;
};
constexpr std::array kUnits{Unit{'d', 86400}, Unit{'h', 3600}, Unit{'m', 60},
                            Unit{'s', 1}};

/// "1d", "3h50m", "1h30m15s": each unit at most once, larger ones first.
std::optional<std::int64_t> seconds_with_units(TimeText text) {
  std::int64_t seconds = 0;
  std::size_t next = 0;
  while (!text.empty()) {
    const auto number = text.number();
    if (!number) return std::nullopt;
    while (next < kUnits.size() && !text.take(kUnits[next].letter)) ++next;
    if (next == kUnits.size()) return std::nullopt;
    seconds += *number * kUnits[next++].seconds;
  }
  return seconds;
}

/// "90", "50:00", "03:50:00", "1-12", "1-12:30", "1-00:00:00".
std::optional<std::int64_t> seconds_with_colons(TimeText text) {
  std::array<std::int64_t, 3> parts{};
  std::size_t count = 0;
  std::int64_t days = 0;
  bool with_days = false;
  do {
    const auto number = text.number();
    if (!number || count == parts.size()) return std::nullopt;
    if (count == 0 && !with_days && text.take('-')) {
      with_days = true;
      days = *number;
      continue;
    }
    parts[count++] = *number;
    if (text.empty()) break;
    if (!text.take(':')) return std::nullopt;
  } while (true);
  // Behind days the first part is hours; else the last part is seconds.
  const std::size_t first = with_days ? 1 : 4 - count;
  std::int64_t seconds = days * kUnits[0].seconds;
  for (std::size_t i = 0; i < count; ++i) seconds += parts[i] * kUnits[first + i].seconds;
  return seconds;
}

std::optional<double> limit_from_start(const std::string& wall_limit) {
  if (wall_limit.empty()) return std::nullopt;
  if (wall_limit == "auto") {
    const auto left = batch_system_seconds_left();
    return left ? std::optional(*left + seconds_running()) : std::nullopt;
  }
  const auto limit = parse_wall_limit(wall_limit);
  PLEAT_REQUIRE(
      limit.has_value(), InputError, "PL0730",
      "run.wall_limit = \"{}\" is no time\n"
      "HINT: write it as \"3h50m\", \"45m\" or \"03:50:00\", as seconds, or \"auto\".",
      wall_limit);
  return limit;
}

}  // namespace

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kNone:
      return "nothing";
    case StopReason::kSignal:
      return "a signal (SIGTERM or SIGUSR1)";
    case StopReason::kWallLimit:
      return "run.wall_limit";
    case StopReason::kStopFile:
      return "the file STOP";
  }
  PLEAT_FAIL(InternalError, "PL0100", "unknown reason to stop");
}

std::optional<double> parse_wall_limit(const std::string& text) {
  auto seconds = seconds_with_colons(TimeText(text));
  if (!seconds) seconds = seconds_with_units(TimeText(text));
  if (!seconds || *seconds <= 0) return std::nullopt;
  return static_cast<double>(*seconds);
}

std::optional<double> batch_system_seconds_left() {
  if (const auto end = number_in("SLURM_JOB_END_TIME")) {
    return *end - static_cast<double>(std::time(nullptr));
  }
  if (const auto whole = number_in("PBS_WALLTIME")) return *whole - seconds_running();
  return std::nullopt;
}

StopRequests::StopRequests(const std::string& wall_limit, std::string folder)
    : folder_(std::move(folder)),
      limit_seconds_(limit_from_start(wall_limit)),
      earlier_actions_(take_signals()) {}

StopRequests::~StopRequests() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &earlier_actions_[i], nullptr);
  }
  first_signal = 0;
}

std::optional<double> StopRequests::seconds_left() const {
  if (!limit_seconds_) return std::nullopt;
  return *limit_seconds_ - seconds_running();
}

StopReason StopRequests::agreed(comm::Communicator& world, double seconds_needed) {
  StopReason mine = StopReason::kNone;
  if (first_signal != 0) mine = StopReason::kSignal;
  const auto left = seconds_left();
  if (left && *left < seconds_needed) mine = StopReason::kWallLimit;
  if (world.rank() == 0 && access(stop_file().c_str(), F_OK) == 0) {
    mine = StopReason::kStopFile;
  }
  // Ranks come here with unlike knowledge: a signal reaches them one by one.
  return static_cast<StopReason>(
      world.all_reduce_value(static_cast<std::int32_t>(mine), comm::Reduction::kMax));
}

void StopRequests::fulfilled() const {
  std::rename(stop_file().c_str(), stopped_file().c_str());  // nothing where nobody asked
}

void StopRequests::forget_earlier() const { unlink(stopped_file().c_str()); }

}  // namespace pleat::train
