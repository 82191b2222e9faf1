// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Everything that asks a run to end early: signals, the wall limit, a STOP file.

#include <array>
#include <csignal>
#include <optional>
#include <string>

#include "pleat/comm/communicator.hpp"

namespace pleat::train {

/// \brief In rising order of what counts when several hold.
enum class StopReason { kNone, kSignal, kWallLimit, kStopFile };
/// \brief "a signal (SIGTERM or SIGUSR1)", "run.wall_limit", "the file STOP".
const char* stop_reason_name(StopReason reason);

/// \brief Seconds in "90", "45m", "3h50m", "1h30m15s", "50:00" (minutes:seconds),
/// "03:50:00" or "1-00:00:00" (days-hours:...), as batch systems write them; nothing for
/// anything else, nor for no time at all.
std::optional<double> parse_wall_limit(const std::string& text);

/// \brief Seconds of this job that are left by the batch system's account ("auto"): from
/// SLURM_JOB_END_TIME (seconds since 1970), else PBS_WALLTIME (seconds, counted from the
/// start of the process); nothing where no batch system says so.
std::optional<double> batch_system_seconds_left();

/// \brief Takes SIGTERM and SIGUSR1 for its lifetime; one per process. The first of them
/// asks for a checkpoint; a second one ends the process at once, as the signal would have
/// done without us (the last complete checkpoint stays). Signals within a quarter of a
/// second are one: launchers pass on what the batch system sends to the ranks as well.
class StopRequests {
 public:
  /// \param wall_limit  as in the deck; the clock runs from the start of the process
  /// \param folder  of the run, in which the first rank looks for STOP
  /// \throws InputError PL0730 a limit that is no time
  StopRequests(const std::string& wall_limit, std::string folder);
  ~StopRequests();
  StopRequests(const StopRequests&) = delete;
  StopRequests& operator=(const StopRequests&) = delete;

  /// \brief What all ranks agree on after a step; one all-reduce. Collective.
  /// \param seconds_needed  what another step and a checkpoint would take at worst: the
  /// wall
  ///   limit counts as reached when less is left
  StopReason agreed(comm::Communicator& world, double seconds_needed);
  /// \brief Renames the STOP file to STOPPED, once the checkpoint that it asked for is written:
  /// a sign for scripts that submit themselves again.
  void fulfilled() const;
  /// \brief Removes the sign, when a run goes on. First rank.
  void forget_earlier() const;
  /// \brief Seconds until the wall limit as this rank sees it; nothing without one.
  std::optional<double> seconds_left() const;

 private:
  std::string stop_file() const { return folder_ + "/STOP"; }
  std::string stopped_file() const { return folder_ + "/STOPPED"; }

  std::string folder_;
  std::optional<double> limit_seconds_;  ///< from the start of the process
  std::array<struct sigaction, 2> earlier_actions_{};
};

}  // namespace pleat::train
