// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The least time of several runs.

#include <functional>

#include "pleat/base/types.hpp"
#include "pleat/comm/communicator.hpp"

namespace pleat::bench {

/// \brief Seconds of the quickest of at least three runs, more until `budget` seconds are
/// over, after one that is not timed; of the slowest rank. Collective, but not within
/// runs.
double best_seconds(const ExecSpace& exec, comm::Communicator& ranks, double budget,
                    const std::function<void()>& run);

/// \brief The same for a run in which the ranks wait for each other: all do equally many.
/// Short ones are timed many at once.
double best_seconds_together(const ExecSpace& exec, comm::Communicator& ranks,
                             double budget, const std::function<void()>& run);

}  // namespace pleat::bench
