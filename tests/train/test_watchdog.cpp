// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief A job that hangs says where each rank is and ends; one that works is left
/// alone.

#include <chrono>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/base/phase.hpp"
#include "pleat/train/watchdog.hpp"
#include "support/command.hpp"
#include "support/mpiexec.hpp"

namespace pleat::train {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

test::CommandResult run(const std::string& launcher, const std::string& kind, int which) {
  return test::run_command(
      fmt::format("timeout 40 {} '{}' {} {}", launcher, PLEAT_HANGING_RANK, kind, which));
}

/// Four ranks of which the third hangs in `place`: each says on a line of its own where
/// it is, and the job ends.
void expect_ended(const std::string& kind, const std::string& place) {
  constexpr double kTwoSteps = 1.0;
  constexpr double kWatchdog = 2.0;
  const test::CommandResult outcome = run(test::mpiexec(4), kind, 2);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_LT(outcome.seconds, kTwoSteps + kWatchdog + 10.0);
  EXPECT_GT(outcome.seconds, kTwoSteps + kWatchdog);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string here =
        rank == 2 ? place : "phase reduction, all_reduce of data*context";
    EXPECT_THAT(
        "\n" + outcome.output,
        HasSubstr(fmt::format("\npleat: rank {} of 4: no step for 2 s: in step 3, {}\n",
                              rank, here)));
  }
  EXPECT_THAT(outcome.output, HasSubstr("\npleat: rank 0 of 4: PL0733: the job hangs"));
}

TEST(Watchdog, LeavesAJobAloneThatTakesStepsInTime) {
  const test::CommandResult outcome = run(test::mpiexec(4), "none", -1);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_GT(outcome.seconds, 2.5) << "shorter than the watchdog's patience";
  EXPECT_THAT(outcome.output, Not(HasSubstr("PL0733")));
}

TEST(Watchdog, OneRankNeverEntersAnExchange) { expect_ended("absent", "phase experts"); }

TEST(Watchdog, OneRankWaitsForAMessageThatNoOneSends) {
  expect_ended("receive", "phase dispatch, receive of data");
}

TEST(Watchdog, TheOthersEndTheJobOfARankThatIsDeadOrFrozen) {
  const test::CommandResult outcome = run(test::mpiexec(4), "frozen", 0);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_THAT(outcome.output, Not(HasSubstr("rank 0 of 4")));
  EXPECT_THAT(outcome.output, HasSubstr("rank 3 of 4: no step for 2 s: in step 3"));
  EXPECT_THAT(outcome.output, HasSubstr("\npleat: rank 1 of 4: PL0733: the job hangs"));
}

TEST(Watchdog, EndsASingleRankWithoutLauncher) {
  const test::CommandResult outcome = run("env", "absent", 0);
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("pleat: no step for 2 s: in step 3, phase experts\n"));
  EXPECT_THAT(outcome.output, HasSubstr("pleat: PL0733: "));
}

TEST(Watchdog, NoneWithoutPatience) {
  Watchdog none(0.0, "rank 0", [] { return std::string(); });
  std::this_thread::sleep_for(20ms);
  none.alive();
}

TEST(Watchdog, EndsAtOnceWithItsObject) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) {
    Watchdog patient(1000.0, "rank 0", [] { return std::string(); });
    patient.alive();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(PhaseTimes, InnerPhasesGiveBackTheOuterOne) {
  PhaseTimes times;
  EXPECT_EQ(times.under_way(), std::nullopt);
  {
    const PhaseScope outer(times, Phase::kAttention);
    EXPECT_EQ(times.under_way(), Phase::kAttention);
    {
      const PhaseScope inner(times, Phase::kData);
      EXPECT_EQ(times.under_way(), Phase::kData);
      std::thread([&] { EXPECT_EQ(times.under_way(), Phase::kData); }).join();
    }
    EXPECT_EQ(times.under_way(), Phase::kAttention);
  }
  EXPECT_EQ(times.under_way(), std::nullopt);
}

}  // namespace
}  // namespace pleat::train
