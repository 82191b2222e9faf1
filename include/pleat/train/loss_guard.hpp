// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Judges each step before its update: NaN, Inf and loss spikes.

#include <cstdint>
#include <vector>

#include "pleat/train/run_config.hpp"

namespace pleat::train {

enum class Verdict { kAccept, kStop, kSkip, kRollback };

/// \brief Keeps the losses of the last accepted steps and compares the next one with their
/// median. A value: the same losses lead to the same verdicts on every rank and after a
/// restart (recent_losses() goes into the checkpoint).
class LossGuard {
 public:
  explicit LossGuard(const GuardSection& section);

  /// \param finite  loss and gradient norm are finite
  /// \return kAccept, after which the loss is among the recent ones; else what the deck
  ///   says, or kStop when `most` interventions are used up
  Verdict judge(double loss, bool finite);
  /// \brief The loss that the last one is compared with; NaN while the window is not full.
  double median() const;

  std::int64_t skipped() const { return skipped_; }
  std::int64_t rollbacks() const { return rollbacks_; }
  const std::vector<double>& recent_losses() const { return recent_; }
  /// \brief Continues as a checkpoint says. After a rollback the counters stay as they are.
  void restore(std::vector<double> recent_losses);
  void restore(std::vector<double> recent_losses, std::int64_t skipped,
               std::int64_t rollbacks);

 private:
  Verdict intervene(GuardAction action);

  GuardSection section_;
  std::vector<double> recent_;  ///< oldest first, at most spike_window
  std::int64_t skipped_ = 0;
  std::int64_t rollbacks_ = 0;
};

}  // namespace pleat::train
