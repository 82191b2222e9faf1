// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief A checkpoint is written beside the next steps, which do not wait for it, and
/// yet a kill takes back no more than the deck allows. The disk is not done until the
/// test lets it.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "pleat/io/checkpoint.hpp"
#include "restart_run.hpp"

namespace pleat::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class Beside : public RestartTest, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    RestartTest::SetUp();
    complete(ranks(), "whole", mapping());
    std::ofstream(path("hold")) << "\n";
  }

  int ranks() const { return GetParam(); }
  std::string mapping() const { return ranks() == 1 ? "" : "parallel.expert=2"; }
  std::unique_ptr<Job> start_held(const std::string& overrides) const {
    return start(ranks(), "cut", mapping() + " " + overrides,
                 {{"PLEAT_TEST_FOLDER", checkpoints("cut")},
                  {"PLEAT_TEST_HOLD_SYNC", path("hold")}});
  }
  std::int64_t recorded() const { return last_recorded_step(path("cut/metrics.csv")); }
  bool is_begun(int step) const {
    return fs::exists(checkpoints("cut") + "/" + io::checkpoint_name(step) + ".tmp");
  }
  /// \return whether it came before the job ended
  template <class Condition>
  bool wait_for(Job& job, const Condition& condition) const {
    while (!condition()) {
      if (!job.runs()) return false;
      std::this_thread::sleep_for(1ms);
    }
    return true;
  }
};

TEST_P(Beside, StepsGoOnWhileTheDiskIsNotDone) {
  const auto job = start_held("checkpoint.every=4 checkpoint.beside=3");
  const bool went_on = wait_for(*job, [&] { return recorded() == 6; });
  ASSERT_TRUE(went_on) << job->wait().output;
  EXPECT_TRUE(is_begun(4));
  EXPECT_EQ(resumable_step("cut"), 0);
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(recorded(), 6) << "the third step waits";
  fs::remove(path("hold"));
  const JobResult result = job->wait();
  EXPECT_EQ(result.exit_code, 0) << result.output;
  expect_same_runs("whole", "cut", kSmallSteps);
}

TEST_P(Beside, AKillTakesBackOneIntervalOfWhatWasReported) {
  const auto job = start_held("checkpoint.every=2");
  const bool begun = wait_for(*job, [&] { return is_begun(2); });
  ASSERT_TRUE(begun) << job->wait().output;
  std::this_thread::sleep_for(500ms);  // for steps that it must not report
  job->signal_all(SIGKILL);
  job->wait();
  EXPECT_EQ(resumable_step("cut"), 0);
  EXPECT_EQ(recorded(), 2);
  EXPECT_EQ(last_logged_step(path("cut/run.log")), 2);
  complete(ranks(), "cut", mapping());
  expect_same_runs("whole", "cut", kSmallSteps);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Beside, ::testing::Values(1, 2));

}  // namespace
}  // namespace pleat::test
