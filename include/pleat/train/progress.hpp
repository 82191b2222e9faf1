// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What a person who watches a run sees.

#include <cstdint>
#include <span>
#include <string>

#include "pleat/train/metrics.hpp"

namespace pleat::train {

/// \brief "42 s", "3:07" (minutes), "1:02:33" (hours), "2 d 03:11".
std::string format_duration(double seconds);

/// \brief "950", "1.23k", "45.6M", "7.89G": three significant digits.
std::string format_count(double value);

/// \brief The values, averaged into at most `width` columns of block characters (UTF-8)
/// between their smallest and largest; columns with NaN or Inf show 'x'.
std::string sparkline(std::span<const double> values, std::size_t width);

/// \brief Estimates the time left from the steps seen so far.
class Progress {
 public:
  explicit Progress(std::int64_t steps) : steps_(steps) {}
  /// \brief Call once for every step, shown or not.
  /// \param wall_seconds  of the step with everything around it
  void add(std::int64_t step, double wall_seconds);
  double seconds_left() const;
  /// \brief "step 120/600 [=====>     ]  loss 2.3141  ... ETA 1:23"; the bar is left out
  /// of lines for a log.
  std::string line(const StepMetrics& metrics, bool with_bar) const;

 private:
  std::int64_t steps_;
  std::int64_t step_ = 0;
  std::int64_t steps_seen_ = 0;  ///< by this process; fewer than step_ after a resume
  double seconds_per_step_ = 0.0;  ///< recent steps weigh more
};

}  // namespace pleat::train
