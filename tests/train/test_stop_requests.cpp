// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Signals, wall limits and STOP files, on one rank and on several.

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pleat/base/error.hpp"
#include "pleat/train/stop_requests.hpp"
#include "support/world.hpp"

namespace pleat::train {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class StopRequestsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "pleat-stop-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    for (const char* name : {"SLURM_JOB_END_TIME", "PBS_WALLTIME"}) unsetenv(name);
  }
  void TearDown() override {
    for (const char* name : {"SLURM_JOB_END_TIME", "PBS_WALLTIME"}) unsetenv(name);
    fs::remove_all(folder_);
  }

  std::string stop_file() const { return folder_ + "/STOP"; }

  std::string folder_;  ///< of this rank alone
  std::unique_ptr<comm::Communicator> world_ = comm::make_mpi_communicator(test::world());
};

TEST_F(StopRequestsTest, TheClockRunsFromTheStartOfTheProcess) {
  std::this_thread::sleep_for(1100ms);
  const StopRequests requests("1000", folder_);
  EXPECT_LT(requests.seconds_left().value(), 999.0);
  EXPECT_GT(requests.seconds_left().value(), 900.0);
}

TEST_F(StopRequestsTest, WallLimitTexts) {
  const auto expect = [](const char* text, double seconds) {
    EXPECT_EQ(parse_wall_limit(text), seconds) << text;
  };
  expect("90", 90);
  expect("90s", 90);
  expect("45m", 45 * 60);
  expect("4h", 4 * 3600);
  expect("3h50m", 3 * 3600 + 50 * 60);
  expect("1h30m15s", 3600 + 30 * 60 + 15);
  expect("2d12h", 60 * 3600);
  expect("1h5s", 3605);
  expect("50:00", 50 * 60);
  expect("90:30", 90 * 60 + 30);
  expect("03:50:00", 3 * 3600 + 50 * 60);
  expect("100:00:01", 360001);
  expect("1-00:00:00", 86400);
  expect("2-03:04:05", 2 * 86400 + 3 * 3600 + 4 * 60 + 5);
  expect("1-12", 36 * 3600);
  expect("1-12:30", 36 * 3600 + 30 * 60);
  expect("0-00:00:01", 1);
}

TEST_F(StopRequestsTest, WhatIsNoWallLimit) {
  for (const char* text : {"",
                           " ",
                           "0",
                           "00:00:00",
                           "0h0m",
                           "-90",
                           "-1:00",
                           "+5",
                           "1h-5m",
                           "h",
                           "m5",
                           "1h30",
                           "30m1h",
                           "1h1h",
                           "1.5h",
                           "1e3",
                           "90 ",
                           " 90",
                           "1:",
                           ":1",
                           "1::2",
                           "1:2:3:4",
                           "1-",
                           "-",
                           "1-2-3",
                           "1:2-3",
                           "1-1h",
                           "1:2h",
                           "UNLIMITED",
                           "auto",
                           "0x10",
                           "5 min",
                           "90S",
                           "99999999999999999999",
                           "9999999999999d",
                           "1-99999999999999999999",
                           "99999999999999999999:00:00"}) {
    EXPECT_FALSE(parse_wall_limit(text).has_value()) << "'" << text << "'";
  }
  EXPECT_THROW(StopRequests("3 hours", folder_), InputError);
}

TEST_F(StopRequestsTest, AutoAsksTheBatchSystem) {
  EXPECT_FALSE(batch_system_seconds_left().has_value());
  EXPECT_FALSE(StopRequests("auto", folder_).seconds_left().has_value());
  setenv("PBS_WALLTIME", "600", 1);
  EXPECT_LT(batch_system_seconds_left().value(), 600.0);
  EXPECT_GT(batch_system_seconds_left().value(), 500.0);
  setenv("SLURM_JOB_END_TIME", "soon", 1);
  EXPECT_LT(batch_system_seconds_left().value(), 600.0) << "not Slurm's";
  setenv("SLURM_JOB_END_TIME", std::to_string(std::time(nullptr) + 5000).c_str(), 1);
  EXPECT_NEAR(StopRequests("auto", folder_).seconds_left().value(), 5000.0, 30.0);
  EXPECT_FALSE(StopRequests("", folder_).seconds_left().has_value());
}

TEST_F(StopRequestsTest, TheWallLimitCountsWhatIsStillNeeded) {
  StopRequests requests("1-00:00:00", folder_);
  EXPECT_EQ(requests.agreed(*world_, 60.0), StopReason::kNone);
  EXPECT_EQ(requests.agreed(*world_, 86400.0), StopReason::kWallLimit);
}

TEST_F(StopRequestsTest, TheLimitOfOneRankCountsForAll) {
  if (world_->rank() == world_->size() - 1) setenv("PBS_WALLTIME", "1", 1);
  StopRequests requests("auto", folder_);
  EXPECT_EQ(requests.agreed(*world_, 5.0), StopReason::kWallLimit);
}

TEST_F(StopRequestsTest, SignalsThatComeRankByRankStopAllAfterTheSameStep) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    StopRequests requests("", folder_);
    int step = 1;
    // The last rank gets the signal first, the others while they finish that step.
    const int mine = 3 + world_->size() - 1 - world_->rank();
    for (; step < 10; ++step) {
      if (step == mine) std::raise(signal);
      if (requests.agreed(*world_, 0.0) == StopReason::kSignal) break;
    }
    EXPECT_EQ(step, 3);
  }
}

TEST_F(StopRequestsTest, ARequestEndsWithTheObject) {
  {
    StopRequests first("", folder_);
    std::raise(SIGUSR1);
    EXPECT_EQ(first.agreed(*world_, 0.0), StopReason::kSignal);
    EXPECT_EQ(first.agreed(*world_, 0.0), StopReason::kSignal);
  }
  StopRequests second("", folder_);
  EXPECT_EQ(second.agreed(*world_, 0.0), StopReason::kNone);
}

void other_handler(int) {}

TEST_F(StopRequestsTest, EarlierActionsComeBack) {
  std::signal(SIGUSR1, other_handler);
  { const StopRequests requests("", folder_); }
  EXPECT_EQ(std::signal(SIGUSR1, SIG_DFL), other_handler);
  EXPECT_EQ(std::signal(SIGTERM, SIG_DFL), SIG_DFL);
}

TEST_F(StopRequestsTest, OnlyTheFirstRankLooksForTheStopFile) {
  StopRequests requests("", folder_);
  if (world_->rank() > 0) std::ofstream(stop_file()) << "\n";
  EXPECT_EQ(requests.agreed(*world_, 0.0), StopReason::kNone);
  if (world_->rank() == 0) std::ofstream(stop_file()) << "\n";
  EXPECT_EQ(requests.agreed(*world_, 0.0), StopReason::kStopFile);
  requests.fulfilled();
  EXPECT_FALSE(fs::exists(stop_file()));
  EXPECT_TRUE(fs::exists(folder_ + "/STOPPED"));
  requests.fulfilled();
  EXPECT_EQ(requests.agreed(*world_, 0.0), StopReason::kNone);
}

/// The signal that ends a process which raises the two, so far apart; 0: it lived on.
int end_of_process(int first, int second, std::chrono::milliseconds apart,
                   const std::string& folder) {
  const pid_t child = fork();
  if (child == 0) {
    const StopRequests requests("", folder);
    std::raise(first);
    std::this_thread::sleep_for(apart);
    std::raise(second);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST_F(StopRequestsTest, ASecondSignalEndsTheProcess) {
  if (world_->rank() > 0) return;
  EXPECT_EQ(end_of_process(SIGTERM, SIGTERM, 1300ms, folder_), SIGTERM);
  EXPECT_EQ(end_of_process(SIGUSR1, SIGUSR1, 1300ms, folder_), SIGUSR1);
  EXPECT_EQ(end_of_process(SIGUSR1, SIGTERM, 1300ms, folder_), SIGTERM);
}

TEST_F(StopRequestsTest, SignalsTogetherAreOne) {
  if (world_->rank() > 0) return;
  EXPECT_EQ(end_of_process(SIGUSR1, SIGUSR1, 0ms, folder_), 0);
  EXPECT_EQ(end_of_process(SIGUSR1, SIGTERM, 20ms, folder_), 0);
}

}  // namespace
}  // namespace pleat::train
