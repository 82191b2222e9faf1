// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Verdicts of the loss guard, worked by hand.

#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/train/loss_guard.hpp"

namespace pleat::train {
namespace {

using testing::ElementsAre;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

GuardSection section(GuardAction spike, std::int64_t window, double factor = 3.0) {
  GuardSection section;
  section.spike = spike;
  section.spike_window = window;
  section.spike_factor = factor;
  return section;
}

void expect_accepted(LossGuard& guard, const std::vector<double>& losses) {
  for (const double loss : losses) {
    EXPECT_EQ(guard.judge(loss, true), Verdict::kAccept) << loss;
  }
}

TEST(LossGuard, NothingIsASpikeBeforeTheWindowIsFull) {
  LossGuard guard(section(GuardAction::kSkip, 3));
  expect_accepted(guard, {1.0, 1000.0});
  EXPECT_TRUE(std::isnan(guard.median()));
  expect_accepted(guard, {2.0});
  EXPECT_EQ(guard.median(), 2.0);
  EXPECT_EQ(guard.judge(6.5, true), Verdict::kSkip);
  EXPECT_EQ(guard.skipped(), 1);
}

TEST(LossGuard, TheBoundItselfIsNoSpike) {
  LossGuard guard(section(GuardAction::kRollback, 1));
  expect_accepted(guard, {2.0, 6.0, 18.0});
  EXPECT_EQ(guard.judge(std::nextafter(54.0, 60.0), true), Verdict::kRollback);
  EXPECT_EQ(guard.rollbacks(), 1);
}

TEST(LossGuard, MediansOfOddAndEvenWindows) {
  LossGuard odd(section(GuardAction::kStop, 5));
  expect_accepted(odd, {5.0, 1.0, 4.0, 2.0, 3.0});
  EXPECT_EQ(odd.median(), 3.0);
  LossGuard even(section(GuardAction::kStop, 4));
  expect_accepted(even, {8.0, 1.0, 2.0, 4.0});
  EXPECT_EQ(even.median(), 3.0);
  LossGuard two(section(GuardAction::kStop, 2));
  expect_accepted(two, {4.0, 1.0});
  EXPECT_EQ(two.median(), 2.5);
}

TEST(LossGuard, TheWindowMovesWithAcceptedLossesAlone) {
  LossGuard guard(section(GuardAction::kSkip, 3));
  expect_accepted(guard, {3.0, 2.0, 1.0});
  EXPECT_EQ(guard.judge(6.1, true), Verdict::kSkip);
  EXPECT_EQ(guard.judge(7.0, true), Verdict::kSkip);
  EXPECT_THAT(guard.recent_losses(), ElementsAre(3.0, 2.0, 1.0));
  expect_accepted(guard, {0.5});
  EXPECT_THAT(guard.recent_losses(), ElementsAre(2.0, 1.0, 0.5));
  EXPECT_EQ(guard.judge(3.1, true), Verdict::kSkip);
}

TEST(LossGuard, WhatIsNotFiniteNeverEntersTheWindow) {
  GuardSection settings = section(GuardAction::kIgnore, 2);
  settings.non_finite = GuardAction::kSkip;
  LossGuard guard(settings);
  EXPECT_EQ(guard.judge(kNaN, true), Verdict::kSkip);
  EXPECT_EQ(guard.judge(kInfinity, true), Verdict::kSkip);
  EXPECT_EQ(guard.judge(-kInfinity, true), Verdict::kSkip);
  EXPECT_EQ(guard.judge(1.0, false), Verdict::kSkip) << "the gradient is not finite";
  EXPECT_THAT(guard.recent_losses(), ElementsAre());
  expect_accepted(guard, {1.0, 1.0e300, 5.0});
  EXPECT_THAT(guard.recent_losses(), ElementsAre(1.0e300, 5.0));
}

TEST(LossGuard, StopsByDefault) {
  LossGuard guard{GuardSection{}};
  expect_accepted(guard, std::vector<double>(40, 1.0));
  expect_accepted(guard, {1000.0});
  EXPECT_EQ(guard.judge(kNaN, false), Verdict::kStop);
  EXPECT_EQ(guard.skipped() + guard.rollbacks(), 0);
}

TEST(LossGuard, NegativeLosses) {
  LossGuard guard(section(GuardAction::kSkip, 1));
  expect_accepted(guard, {-2.0, -3.0, -2.0});
  // The bound is -2 + (3 - 1) * 2 = 2.
  EXPECT_EQ(guard.judge(2.1, true), Verdict::kSkip);
  expect_accepted(guard, {2.0});
}

TEST(LossGuard, InterventionsOfBothKindsAreCountedTogether) {
  GuardSection settings = section(GuardAction::kRollback, 1);
  settings.non_finite = GuardAction::kSkip;
  settings.most = 3;
  LossGuard guard(settings);
  expect_accepted(guard, {1.0});
  EXPECT_EQ(guard.judge(kNaN, true), Verdict::kSkip);
  EXPECT_EQ(guard.judge(4.0, true), Verdict::kRollback);
  EXPECT_EQ(guard.judge(kNaN, true), Verdict::kSkip);
  EXPECT_EQ(guard.judge(4.0, true), Verdict::kStop);
  EXPECT_EQ(guard.judge(kNaN, true), Verdict::kStop);
  EXPECT_EQ(guard.skipped(), 2);
  EXPECT_EQ(guard.rollbacks(), 1);
  expect_accepted(guard, {2.0});
}

TEST(LossGuard, RestoredAtAnyStepItJudgesAlike) {
  const std::vector<double> losses{4, 3, 5, 12, 2, kNaN, 3, 9, 11, 2, 1, 40, 2, 7};
  GuardSection settings = section(GuardAction::kRollback, 4, 2.0);
  settings.non_finite = GuardAction::kSkip;
  settings.most = 4;
  for (std::size_t cut = 0; cut < losses.size(); ++cut) {
    LossGuard whole(settings), resumed(settings);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      if (i == cut) {
        resumed.restore(whole.recent_losses(), whole.skipped(), whole.rollbacks());
      }
      const Verdict verdict = whole.judge(losses[i], true);
      if (i < cut) continue;
      EXPECT_EQ(resumed.judge(losses[i], true), verdict) << cut << " " << i;
    }
    EXPECT_EQ(resumed.recent_losses(), whole.recent_losses());
    EXPECT_EQ(resumed.rollbacks(), whole.rollbacks());
    EXPECT_GT(whole.rollbacks(), 0);
  }
}

TEST(LossGuard, RollbacksKeepTheCounters) {
  LossGuard guard(section(GuardAction::kRollback, 2));
  expect_accepted(guard, {2.0, 2.0});
  const std::vector<double> of_checkpoint = guard.recent_losses();
  expect_accepted(guard, {5.0, 5.0});
  EXPECT_EQ(guard.judge(16.0, true), Verdict::kRollback);
  guard.restore(of_checkpoint);
  EXPECT_EQ(guard.rollbacks(), 1);
  EXPECT_EQ(guard.median(), 2.0);
}

TEST(LossGuard, AShorterWindowKeepsTheNewestLosses) {
  LossGuard guard(section(GuardAction::kSkip, 2));
  guard.restore({9.0, 9.0, 9.0, 1.0, 2.0}, 0, 0);
  EXPECT_THAT(guard.recent_losses(), ElementsAre(1.0, 2.0));
}

}  // namespace
}  // namespace pleat::train
