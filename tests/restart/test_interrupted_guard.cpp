// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Batches that are left out and rollbacks come again as they were when the run is
/// interrupted between them.

#include <csignal>
#include <filesystem>
#include <fstream>

#include "pleat/io/checkpoint.hpp"
#include "restart_run.hpp"

namespace pleat::test {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kNumerical = 3;
constexpr int kStoppedEarly = 75;
/// Losses of random tokens wander by a few per cent: at so low a bound some of them are spikes.
constexpr const char* kNervous =
    "guard.spike_factor=1.001 guard.spike_window=3 guard.most=1000 checkpoint.every=3 "
    "checkpoint.asynchronous=true optimizer.lr=1e-4";

class InterruptedGuard : public RestartTest,
                         public ::testing::WithParamInterface<std::tuple<const char*, int>> {
 protected:
  void SetUp() override {
    RestartTest::SetUp();
    action_ = std::get<0>(GetParam());
    ranks_ = std::get<1>(GetParam());
    overrides_ = std::string(kNervous) + " guard.spike=" + action_;
    if (ranks_ > 1) overrides_ += " parallel.expert=2";
    complete(ranks_, "whole", overrides_);
    const auto columns = metrics_columns(path("whole/metrics.csv"));
    const std::string counter = action_ == "skip" ? "skipped" : "rollbacks";
    ASSERT_GT(std::stoi(columns.at(counter).back()), 0) << "the deck has no spike to offer";
  }

  std::string action_;
  int ranks_ = 1;
  std::string overrides_;
};

TEST_P(InterruptedGuard, AKillAtEachStepChangesNothing) {
  for (int step = 1; step < kSmallSteps; step += ranks_) {
    SCOPED_TRACE(step);
    const auto job = start(ranks_, "cut", overrides_);
    job->pause_after(step);
    ASSERT_TRUE(job->wait_for_pause(step)) << job->wait().output;
    job->signal_all(SIGKILL);
    job->wait();
    complete(ranks_, "cut", overrides_);
    expect_same_runs("whole", "cut", kSmallSteps);
    ASSERT_FALSE(HasFailure());
    fs::remove_all(path("cut"));
  }
}

TEST_P(InterruptedGuard, ASignalAtEachStepChangesNothing) {
  for (int step = ranks_; step < kSmallSteps; step += ranks_) {
    SCOPED_TRACE(step);
    const auto job = start(ranks_, "cut", overrides_);
    job->pause_after(step);
    ASSERT_TRUE(job->wait_for_pause(step)) << job->wait().output;
    job->signal(SIGTERM, 0);
    job->go_on(step);
    const JobResult result = job->wait();
    ASSERT_EQ(result.exit_code, kStoppedEarly) << result.output;
    complete(ranks_, "cut", overrides_);
    expect_same_runs("whole", "cut", kSmallSteps);
    ASSERT_FALSE(HasFailure());
    fs::remove_all(path("cut"));
  }
}

class Stop : public RestartTest {};

/// Which is being written beside the step that is judged.
TEST_F(Stop, KeepsTheCheckpointOfTheStepBefore) {
  const JobResult result =
      start(1, "out",
            "checkpoint.asynchronous=true checkpoint.every=1 optimizer.lr=1e-4 "
            "guard.spike=stop guard.spike_factor=1.000001 guard.spike_window=1")
          ->wait();
  ASSERT_EQ(result.exit_code, kNumerical) << result.output;
  const std::string last = metrics_columns(path("out/metrics.csv")).at("step").back();
  const std::string newest = io::checkpoint_name(std::stoi(last));
  EXPECT_TRUE(fs::exists(checkpoints("out") + "/" + newest)) << result.output;
}

class Rollback : public RestartTest {};

/// LATEST names an earlier step, as after a copy or an edit by hand; the only regular checkpoint
/// lies ahead of the run.
TEST_F(Rollback, NeverLeadsToALaterStep) {
  complete(1, "out", "checkpoint.every=2 optimizer.lr=1e-4");
  std::ofstream(checkpoints("out") + "/LATEST") << io::checkpoint_name(2) << "\n";
  const JobResult result =
      start(1, "out",
            "optimizer.lr=1e-4 run.steps=11 checkpoint.every=12 guard.spike=rollback "
            "guard.spike_factor=1.000001 guard.spike_window=1")
          ->wait();
  EXPECT_EQ(result.exit_code, kNumerical) << result.output;
  EXPECT_THAT(result.output, HasSubstr("resuming after step 2"));
  EXPECT_THAT(result.output, HasSubstr("PL0711"));
  EXPECT_THAT(result.output, Not(HasSubstr("back to step")));
}

TEST_F(Rollback, DoesNotTellAgainWhatChangedInTheDeck) {
  const std::string overrides = std::string(kNervous) + " guard.spike=rollback";
  const auto job = start(1, "out", overrides);
  job->pause_after(3);
  ASSERT_TRUE(job->wait_for_pause(3)) << job->wait().output;
  job->signal_all(SIGTERM);
  job->go_on(3);
  ASSERT_EQ(job->wait().exit_code, kStoppedEarly);
  const std::string output = complete(1, "out", overrides + " run.watchdog=100").output;
  ASSERT_THAT(output, HasSubstr("back to step")) << "the deck has no spike to offer";
  const std::string told = "changed since the checkpoint";
  const std::size_t first = output.find(told);
  ASSERT_NE(first, std::string::npos) << output;
  EXPECT_EQ(output.find(told, first + 1), std::string::npos) << output;
}

INSTANTIATE_TEST_SUITE_P(Actions, InterruptedGuard,
                         ::testing::Combine(::testing::Values("skip", "rollback"),
                                            ::testing::Values(1, 2)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_ranks_" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace pleat::test
