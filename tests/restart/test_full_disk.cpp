// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief A disk that fills up: training goes on with a warning or ends with exit code 4,
/// earlier checkpoints stay as they are, and the run goes on once there is room again.
///
/// A preloaded library plays the disk of a given size (tests/support/faults.c); where this
/// process may mount one, a small tmpfs is filled as well.

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <sys/mount.h>

#include "pleat/io/checkpoint.hpp"
#include "restart_run.hpp"

namespace pleat::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;

constexpr int kInputOutput = 4;
constexpr int kStoppedEarly = 75;
constexpr const char* kOverrides = "checkpoint.every=2";

class FullDisk : public RestartTest {
 protected:
  void SetUp() override {
    RestartTest::SetUp();
    complete(1, "whole", kOverrides);
    checkpoint_bytes_ =
        static_cast<long long>(fs::file_size(checkpoints("whole") + "/step_00000002.h5"));
  }

  /// Room for so many checkpoints; changes at once for a job that runs.
  void set_space(double for_checkpoints) const {
    const auto bytes =
        static_cast<long long>(for_checkpoints * static_cast<double>(checkpoint_bytes_));
    write("space.new", std::to_string(bytes));
    fs::rename(path("space.new"), path("space"));
  }

  /// \param preallocates  whether the file system tells beforehand that there is no room
  std::map<std::string, std::string> small_disk(bool preallocates) const {
    std::map<std::string, std::string> environment{{"PLEAT_TEST_FOLDER", checkpoints("cut")},
                                                   {"PLEAT_TEST_SPACE", path("space")}};
    if (!preallocates) environment["PLEAT_TEST_NO_PREALLOCATION"] = "1";
    return environment;
  }

  /// What a checkpoint that was not finished must not leave.
  void expect_no_remains() const {
    for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints("cut"))) {
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
      EXPECT_NE(entry.path().extension(), ".space") << entry.path();
    }
  }

  void expect_clear(const JobResult& result) const {
    EXPECT_EQ(result.exit_code, kInputOutput) << result.output;
    EXPECT_THAT(result.output, HasSubstr("cut/checkpoints/step_")) << "which file";
    EXPECT_THAT(result.output,
                AnyOf(HasSubstr(std::strerror(ENOSPC)), HasSubstr("no room"))) << "what is wrong";
    EXPECT_THAT(result.output, HasSubstr("HINT"));
  }

  long long checkpoint_bytes_ = 0;
};

class FullDiskOnRanks : public FullDisk,
                        public ::testing::WithParamInterface<std::tuple<int, bool, bool>> {
 protected:
  int ranks() const { return std::get<0>(GetParam()); }
  std::string overrides() const {
    const char* mapping = ranks() == 1 ? "" : " parallel.expert=2";
    const char* asynchronous = std::get<1>(GetParam()) ? "true" : "false";
    return std::string(kOverrides) + " checkpoint.asynchronous=" + asynchronous + mapping;
  }
  void SetUp() override {
    FullDisk::SetUp();
    disk_ = small_disk(std::get<2>(GetParam()));
    if (ranks() > 1) {
      fs::remove_all(path("whole"));
      complete(ranks(), "whole", overrides());
    }
  }
  std::map<std::string, std::string> disk_;
};

TEST_P(FullDiskOnRanks, EarlierCheckpointsStayAndTheRunGoesOnWithRoom) {
  set_space(2.5);
  const JobResult full = start(ranks(), "cut", overrides(), disk_)->wait();
  expect_clear(full);
  expect_no_remains();
  EXPECT_EQ(resumable_step("cut"), 4) << full.output;
  EXPECT_THAT(full.output, HasSubstr("WARNING")) << "the run went on without checkpoints";

  // Again without room: nothing gets worse.
  expect_clear(start(ranks(), "cut", overrides(), disk_)->wait());
  EXPECT_EQ(resumable_step("cut"), 4);

  const JobResult done = complete(ranks(), "cut", overrides());
  EXPECT_EQ(resumed_step(done.output), 4);
  expect_same_runs("whole", "cut", kSmallSteps);
}

TEST_P(FullDiskOnRanks, RoomThatComesBackIsUsed) {
  set_space(1.5);
  const auto job = start(ranks(), "cut", overrides(), disk_);
  job->pause_after(9);
  ASSERT_TRUE(job->wait_for_pause(9)) << job->wait().output;
  set_space(100);
  job->go_on(9);
  const JobResult result = job->wait();
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("WARNING: checkpoint"));
  EXPECT_FALSE(fs::exists(checkpoints("cut") + "/" + io::checkpoint_name(6)));
  EXPECT_TRUE(fs::exists(checkpoints("cut") + "/" + io::checkpoint_name(12)));
  expect_same_runs("whole", "cut", kSmallSteps);
}

/// Without a checkpoint exit code 75, which asks for the job to come again, would be a lie.
TEST_P(FullDiskOnRanks, AStopWithoutRoomForItsCheckpointIsAFailure) {
  set_space(1.5);
  const auto job = start(ranks(), "cut", overrides(), disk_);
  job->pause_after(7);
  ASSERT_TRUE(job->wait_for_pause(7)) << job->wait().output;
  job->signal(SIGTERM, 0);
  job->go_on(7);
  expect_clear(job->wait());
  expect_no_remains();
  EXPECT_EQ(resumable_step("cut"), 2);
  complete(ranks(), "cut", overrides());
  expect_same_runs("whole", "cut", kSmallSteps);
}

/// Not even LATEST, a few bytes, finds room.
TEST_P(FullDiskOnRanks, ACheckpointThatJustFits) {
  for (const double space : {1.0, 1.05, 1.3, 1.9, 2.0, 2.05}) {
    SCOPED_TRACE(space);
    fs::remove_all(path("cut"));
    set_space(space);
    const JobResult full = start(ranks(), "cut", overrides(), disk_)->wait();
    EXPECT_EQ(full.exit_code, kInputOutput) << full.output;
    resumable_step("cut");  // whatever there is, is sound
    complete(ranks(), "cut", overrides());
    expect_same_runs("whole", "cut", kSmallSteps);
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, FullDiskOnRanks,
                         ::testing::Values(std::tuple{1, true, true}, std::tuple{1, true, false},
                                           std::tuple{1, false, false},
                                           std::tuple{2, true, false},
                                           std::tuple{2, false, true}),
                         [](const auto& info) {
                           return std::string("ranks_") + std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "_asynchronous" : "_synchronous") +
                                  (std::get<2>(info.param) ? "_preallocated" : "");
                         });

// --- A real one -----------------------------------------------------------------------------

class FullTmpfs : public FullDisk {
 protected:
  void SetUp() override {
    FullDisk::SetUp();
    fs::create_directory(path("disk"));
    if (mount("tmpfs", path("disk").c_str(), "tmpfs", 0, "size=4m") != 0) {
      GTEST_SKIP() << "no tmpfs may be mounted here: " << std::strerror(errno);
    }
    mounted_ = true;
  }
  void TearDown() override {
    if (mounted_) umount2(path("disk").c_str(), MNT_DETACH);
    FullDisk::TearDown();
  }

  /// A file that leaves so many bytes free.
  void fill_up(std::uintmax_t free) const {
    fs::remove(path("disk/ballast"));
    const std::uintmax_t now = fs::space(path("disk")).available;
    ASSERT_GT(now, free);
    std::ofstream ballast(path("disk/ballast"), std::ios::binary);
    ballast << std::string(now - free, 'x');
  }

  bool mounted_ = false;
};

TEST_F(FullTmpfs, EverythingOfTheRunLiesOnIt) {
  const auto checkpoint = static_cast<std::uintmax_t>(checkpoint_bytes_);
  // From less than the first row needs to some checkpoints.
  for (const std::uintmax_t free :
       {std::uintmax_t{16384}, checkpoint / 2, checkpoint + 16384, checkpoint * 5 / 2}) {
    SCOPED_TRACE(free);
    fs::remove_all(path("disk/cut"));
    fill_up(free);
    const JobResult full = start(1, "disk/cut", kOverrides)->wait();
    EXPECT_EQ(full.exit_code, kInputOutput) << full.output;
    EXPECT_THAT(full.output, HasSubstr("disk/cut"));
    resumable_step("disk/cut");
    fs::remove(path("disk/ballast"));
    complete(1, "disk/cut", kOverrides);
    expect_same_runs("whole", "disk/cut", kSmallSteps);
    ASSERT_FALSE(HasFailure());
  }
}

TEST_F(FullTmpfs, AFullDiskWhenARunGoesOn) {
  complete(1, "disk/cut", std::string(kOverrides) + " run.steps=4");
  fill_up(0);
  const JobResult full = start(1, "disk/cut", kOverrides)->wait();
  EXPECT_EQ(full.exit_code, kInputOutput) << full.output;
  EXPECT_THAT(full.output, HasSubstr("HINT: check free space"));
  fs::remove(path("disk/ballast"));
  complete(1, "disk/cut", kOverrides);
}

TEST_F(FullTmpfs, AFullDiskInTheMiddleOfARun) {
  const auto job = start(1, "disk/cut", kOverrides);
  job->pause_after(5);
  ASSERT_TRUE(job->wait_for_pause(5)) << job->wait().output;
  fill_up(0);
  job->go_on(5);
  const JobResult full = job->wait();
  EXPECT_EQ(full.exit_code, kInputOutput) << full.output;
  EXPECT_GE(resumable_step("disk/cut"), 2);
  fs::remove(path("disk/ballast"));
  complete(1, "disk/cut", kOverrides);
  expect_same_runs("whole", "disk/cut", kSmallSteps);
}

}  // namespace
}  // namespace pleat::test
