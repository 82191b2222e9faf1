// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Batches that are left out and rollbacks come again as they were when the run is
/// interrupted between them.

#include <csignal>
#include <filesystem>

#include "restart_run.hpp"

namespace pleat::test {
namespace {

namespace fs = std::filesystem;

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

INSTANTIATE_TEST_SUITE_P(Actions, InterruptedGuard,
                         ::testing::Combine(::testing::Values("skip", "rollback"),
                                            ::testing::Values(1, 2)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_ranks_" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace pleat::test
