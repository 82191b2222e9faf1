// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <filesystem>
#include <functional>

#include <sys/wait.h>

#include "files/support.hpp"

namespace pleat::io {
namespace {

using test::filled;
using test::message_of;
using test::small_layout;
using testing::HasSubstr;

std::string save(const std::string& folder, std::int64_t step) {
  const auto layout = small_layout();
  CheckpointInfo info = test::unusual_info();
  info.step = step;
  const auto seed = static_cast<std::uint64_t>(step);
  return test::save_checkpoint<double>(
      folder, info, *layout,
      {filled<double>(layout, seed), filled<double>(layout, seed + 1),
       filled<double>(layout, seed + 2)});
}

/// Collects the lines of a log.
class LogText {
 public:
  LogText() : file_(std::tmpfile()), log_(true, file_) {}
  ~LogText() { std::fclose(file_); }
  Log& log() { return log_; }
  std::string text() {
    std::rewind(file_);
    std::string all(10000, '\0');
    all.resize(std::fread(all.data(), 1, all.size(), file_));
    return all;
  }

 private:
  std::FILE* file_;
  Log log_;
};

void damage(const std::string& path) {
  std::string bytes = test::read_file(path);
  const std::size_t place = bytes.size() / 2;
  bytes.resize(place);
  test::write_file(path, bytes);
}

TEST(CheckpointFolder, NothingToResumeFrom) {
  const test::TemporaryFolder folder;
  LogText log;
  EXPECT_EQ(find_resume_checkpoint(folder / "none", log.log()), std::nullopt);
  EXPECT_EQ(find_resume_checkpoint(folder.path(), log.log()), std::nullopt);
  EXPECT_EQ(log.text(), "");
}

TEST(CheckpointFolder, TheNewestIsTaken) {
  const test::TemporaryFolder folder;
  for (const std::int64_t step : {10, 20, 30}) save(folder.path(), step);
  LogText log;
  EXPECT_EQ(find_resume_checkpoint(folder.path(), log.log()),
            folder / "step_00000030.h5");
  std::filesystem::remove(folder / "LATEST");
  EXPECT_EQ(find_resume_checkpoint(folder.path(), log.log()),
            folder / "step_00000030.h5");
  EXPECT_EQ(log.text(), "");
  test::write_file(folder / "LATEST", "step_00000020.h5\n");
  EXPECT_EQ(find_resume_checkpoint(folder.path(), log.log()),
            folder / "step_00000020.h5");
  test::write_file(folder / "LATEST", "step_00000099.h5\n");
  EXPECT_EQ(find_resume_checkpoint(folder.path(), log.log()),
            folder / "step_00000030.h5");
  EXPECT_THAT(log.text(), HasSubstr("step_00000099.h5"));
}

TEST(CheckpointFolder, ADamagedOneIsNamedAndTheOneBeforeItTaken) {
  const test::TemporaryFolder folder;
  for (const std::int64_t step : {10, 20, 30}) save(folder.path(), step);
  damage(folder / "step_00000030.h5");
  LogText log;
  EXPECT_EQ(find_resume_checkpoint(folder.path(), log.log()),
            folder / "step_00000020.h5");
  EXPECT_THAT(log.text(), HasSubstr("step_00000030.h5' cannot be used: PL0301"));
  damage(folder / "step_00000020.h5");
  damage(folder / "step_00000010.h5");
  EXPECT_THAT(
      message_of<InputError>([&] { find_resume_checkpoint(folder.path(), log.log()); }),
      HasSubstr("PL0312"));
}

TEST(CheckpointFolder, PruningKeepsTheNewestAndLatest) {
  const test::TemporaryFolder folder;
  for (const std::int64_t step : {2, 5, 10, 20, 30}) save(folder.path(), step);
  test::write_file(folder / "LATEST", "step_00000010.h5\n");
  test::write_file(folder / "step_00000040.h5.tmp", "left by a kill");
  test::write_file(folder / "notes.tmp", "not ours");
  prune_checkpoints(folder.path(), {});
  EXPECT_TRUE(std::filesystem::exists(folder / "step_00000002.h5"));
  prune_checkpoints(folder.path(), {.newest = 2});
  EXPECT_TRUE(std::filesystem::exists(folder / "step_00000030.h5"));
  EXPECT_TRUE(std::filesystem::exists(folder / "step_00000020.h5"));
  EXPECT_TRUE(std::filesystem::exists(folder / "step_00000010.h5"));
  EXPECT_TRUE(std::filesystem::exists(folder / "step_00000005.h5"));
  EXPECT_FALSE(std::filesystem::exists(folder / "step_00000002.h5"));
  EXPECT_FALSE(std::filesystem::exists(folder / "step_00000040.h5.tmp"));
  EXPECT_TRUE(std::filesystem::exists(folder / "notes.tmp"));
}

TEST(CheckpointFolder, PruningDoesNotCountThoseThatWerePassedOver) {
  const test::TemporaryFolder folder;
  for (const std::int64_t step : {10, 20, 30, 90}) save(folder.path(), step);
  test::write_file(folder / "LATEST", "step_00000030.h5\n");  // 90 is damaged
  prune_checkpoints(folder.path(), {.newest = 2});
  EXPECT_FALSE(std::filesystem::exists(folder / checkpoint_name(10)));
  for (const std::int64_t step : {20, 30, 90}) {
    EXPECT_TRUE(std::filesystem::exists(folder / checkpoint_name(step))) << step;
  }
}

TEST(CheckpointFolder, PruningRemovesWhatItCan) {
  const test::TemporaryFolder folder;
  for (const std::int64_t step : {10, 30, 40}) save(folder.path(), step);
  std::filesystem::create_directories(folder / checkpoint_name(20) + "/not_empty");
  test::write_file(folder / "step_00000050.h5.tmp", "left by a kill");
  EXPECT_THAT(
      message_of<IoError>([&] { prune_checkpoints(folder.path(), {.newest = 1}); }),
      HasSubstr("step_00000020.h5"));
  for (const std::string& gone :
       {checkpoint_name(10), checkpoint_name(30), std::string("step_00000050.h5.tmp")}) {
    EXPECT_FALSE(std::filesystem::exists(folder / gone)) << gone;
  }
}

TEST(CheckpointFolder, PruningKeepsEveryNth) {
  const test::TemporaryFolder folder;
  for (std::int64_t step = 0; step <= 60; step += 10) save(folder.path(), step);
  prune_checkpoints(folder.path(), {.newest = 2, .every = 30});
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    left.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(left, testing::UnorderedElementsAre(checkpoint_name(0), checkpoint_name(30),
                                                  checkpoint_name(50), checkpoint_name(60),
                                                  "LATEST"));
}

TEST(CheckpointFolder, PruningCountsRegularOnes) {
  const test::TemporaryFolder folder;
  for (const std::int64_t step : {10, 13, 20, 24, 27}) save(folder.path(), step);
  prune_checkpoints(folder.path(), {.newest = 1, .regular = 10});
  EXPECT_FALSE(std::filesystem::exists(folder / checkpoint_name(10)));
  EXPECT_FALSE(std::filesystem::exists(folder / checkpoint_name(13)));
  for (const std::int64_t step : {20, 24, 27}) {
    EXPECT_TRUE(std::filesystem::exists(folder / checkpoint_name(step))) << step;
  }
}

TEST(CheckpointFolder, CandidatesComeInTheOrderOfTrying) {
  const test::TemporaryFolder folder;
  LogText log;
  EXPECT_TRUE(resume_candidates(folder / "none", log.log()).empty());
  for (const std::int64_t step : {5, 10, 20, 30, 40}) save(folder.path(), step);
  move_latest(folder.path(), checkpoint_name(20));
  const auto path = [&](std::int64_t step) { return folder / checkpoint_name(step); };
  EXPECT_THAT(resume_candidates(folder.path(), log.log()),
              testing::ElementsAre(path(20), path(10), path(5), path(40), path(30)));
  EXPECT_EQ(log.text(), "");
}

TEST(CheckpointFolder, ACopyUnderTheNameOfAnotherStepIsPassedOver) {
  const test::TemporaryFolder folder;
  for (const std::int64_t step : {10, 20}) save(folder.path(), step);
  std::filesystem::copy(folder / checkpoint_name(10), folder / checkpoint_name(30));
  move_latest(folder.path(), checkpoint_name(30));
  LogText log;
  EXPECT_EQ(find_resume_checkpoint(folder.path(), log.log()), folder / checkpoint_name(20));
  EXPECT_THAT(log.text(), HasSubstr("step_00000030.h5' cannot be used: PL0315"));
  EXPECT_THAT(log.text(), HasSubstr("step 10"));
  require_step_of_name(folder / "best.h5", 10);  // says no step
}

TEST(CheckpointFolder, ASpoiltLatestIsToldAndPassedOver) {
  const test::TemporaryFolder folder;
  for (const std::int64_t step : {10, 20, 30}) save(folder.path(), step);
  const std::string latest = folder / "LATEST";
  const std::pair<const char*, std::function<void()>> spoilt[] = {
      {"long", [&] { test::write_file(latest, std::string(5000, '\0')); }},
      {"zeros", [&] { test::write_file(latest, std::string(16, '\0')); }},
      {"empty", [&] { test::write_file(latest, ""); }},
      {"a folder", [&] { std::filesystem::create_directory(latest); }}};
  for (const auto& [name, spoil] : spoilt) {
    SCOPED_TRACE(name);
    std::filesystem::remove(latest);
    spoil();
    LogText log;
    EXPECT_EQ(resume_candidates(folder.path(), log.log()).front(), folder / checkpoint_name(30));
    EXPECT_THAT(log.text(), HasSubstr("WARNING"));
    EXPECT_THAT(log.text(), HasSubstr(latest));
    prune_checkpoints(folder.path(), {});
  }
  move_latest(folder.path(), checkpoint_name(20));
  EXPECT_EQ(test::read_file(latest), checkpoint_name(20) + "\n");
  EXPECT_TRUE(std::filesystem::is_directory(latest + ".old-1"));
}

TEST(CheckpointFolder, NewerOnesThanLatestNamesAreTold) {
  const test::TemporaryFolder folder;
  for (const std::int64_t step : {10, 20, 30}) save(folder.path(), step);
  LogText log;
  warn_of_newer_checkpoints(folder.path(), log.log());
  EXPECT_EQ(log.text(), "");
  move_latest(folder.path(), checkpoint_name(20));
  warn_of_newer_checkpoints(folder.path(), log.log());
  EXPECT_THAT(log.text(), HasSubstr("WARNING"));
  EXPECT_THAT(log.text(), HasSubstr(checkpoint_name(30)));
  EXPECT_THAT(log.text(), testing::Not(HasSubstr(checkpoint_name(10))));
}

/// The states in which a kill can leave the folder, in the order of the protocol.
TEST(CheckpointFolder, EveryStateOfTheProtocolCanBeResumed) {
  const test::TemporaryFolder folder;
  save(folder.path(), 10);
  const std::string complete = test::read_file(save(folder / "other", 20));
  LogText log;
  for (std::size_t bytes = 0; bytes <= complete.size(); bytes += complete.size() / 7) {
    test::write_file(folder / "step_00000020.h5.tmp", complete.substr(0, bytes));
    EXPECT_EQ(find_resume_checkpoint(folder.path(), log.log()),
              folder / "step_00000010.h5");
  }
  std::filesystem::rename(folder / "step_00000020.h5.tmp", folder / "step_00000020.h5");
  test::write_file(folder / "step_00000020.h5", complete);
  EXPECT_EQ(find_resume_checkpoint(folder.path(), log.log()),
            folder / "step_00000010.h5");
  test::write_file(folder / "LATEST.tmp", "step_000");
  EXPECT_EQ(find_resume_checkpoint(folder.path(), log.log()),
            folder / "step_00000010.h5");
  std::filesystem::remove(folder / "LATEST.tmp");
  test::write_file(folder / "LATEST", "step_00000020.h5\n");
  EXPECT_EQ(find_resume_checkpoint(folder.path(), log.log()),
            folder / "step_00000020.h5");
  EXPECT_EQ(log.text(), "");
}

}  // namespace
}  // namespace pleat::io
