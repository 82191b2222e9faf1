// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The folder of a run over several jobs: one at a time, damaged checkpoints, changed
/// decks, which checkpoints stay, and runs that go on from those of another folder.

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include <sys/stat.h>
#include <unistd.h>

#include "pleat/io/checkpoint.hpp"
#include "restart_run.hpp"

namespace pleat::test {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kBadInput = 2;
constexpr int kStoppedEarly = 75;

class RunFolderTest : public RestartTest {
 protected:
  std::string checkpoint(const std::string& run, int step) const {
    return checkpoints(run) + "/" + io::checkpoint_name(step);
  }
  /// The steps whose checkpoints are there.
  std::set<int> kept(const std::string& run) const {
    std::set<int> steps;
    for (int step = 1; step <= kSmallSteps; ++step) {
      if (fs::exists(checkpoint(run, step))) steps.insert(step);
    }
    return steps;
  }
  void stop_after(const std::string& run, int step, const std::string& overrides = "") const {
    const auto job = start(1, run, overrides);
    job->pause_after(step);
    ASSERT_TRUE(job->wait_for_pause(step)) << job->wait().output;
    job->signal_all(SIGTERM);
    job->go_on(step);
    const JobResult result = job->wait();
    ASSERT_EQ(result.exit_code, kStoppedEarly) << result.output;
  }
  void flip_bit(const std::string& file, std::uintmax_t place) const {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(static_cast<std::streamoff>(place));
    const char byte = static_cast<char>(bytes.get() ^ 4);
    bytes.seekp(static_cast<std::streamoff>(place));
    bytes.put(byte);
  }
};

// --- Two jobs --------------------------------------------------------------------------------

class TwoJobs : public RunFolderTest, public ::testing::WithParamInterface<int> {};

TEST_P(TwoJobs, TheSecondIsRefusedAndTheFirstNotDisturbed) {
  complete(1, "whole", "");
  const auto first = start(1, "out", "");
  first->pause_after(7);
  ASSERT_TRUE(first->wait_for_pause(7)) << first->wait().output;
  const std::string metrics = text_of_file(path("out/metrics.csv"));
  for (const char* overrides : {"", "checkpoint.resume=none", "run.steps=3"}) {
    const JobResult second = start(GetParam(), "out", overrides)->wait();
    EXPECT_EQ(second.exit_code, kBadInput) << second.output;
    EXPECT_THAT(second.output, HasSubstr("PL0731"));
    EXPECT_THAT(second.output, HasSubstr("HINT"));
    EXPECT_THAT(second.output, HasSubstr("process " + std::to_string(first->ranks().at(0))));
  }
  EXPECT_EQ(text_of_file(path("out/metrics.csv")), metrics);
  EXPECT_FALSE(fs::exists(path("out/metrics.csv.old-1")));
  first->go_on(7);
  EXPECT_EQ(first->wait().exit_code, 0);
  expect_same_runs("whole", "out", kSmallSteps);
}

INSTANTIATE_TEST_SUITE_P(Ranks, TwoJobs, ::testing::Values(1, 2));

TEST_F(RunFolderTest, BothAtOnceInANewFolder) {
  complete(1, "whole", "");
  const auto a = start(1, "out", "");
  const auto b = start(1, "out", "");
  const JobResult results[] = {a->wait(), b->wait()};
  int refused = 0;
  for (const JobResult& result : results) {
    if (result.output.find("PL0731") == std::string::npos) {
      EXPECT_EQ(result.exit_code, 0) << result.output;  // the winner, or one that came later
    } else {
      EXPECT_EQ(result.exit_code, kBadInput) << result.output;
      ++refused;
    }
  }
  EXPECT_LE(refused, 1);
  expect_same_runs("whole", "out", kSmallSteps);
}

TEST_F(RunFolderTest, AKilledJobLeavesNoLock) {
  const auto job = start(1, "out", "");
  job->pause_after(6);
  ASSERT_TRUE(job->wait_for_pause(6)) << job->wait().output;
  job->signal_all(SIGKILL);
  job->wait();
  complete(1, "out", "");
}

/// Outside of git nobody knows it.
TEST_F(RunFolderTest, ACheckpointNamesTheCommitOfItsProgram) {
  complete(1, "out", "run.steps=2");
  const io::CheckpointReader reader(checkpoint("out", 2));
  const bool in_git = fs::exists(PLEAT_SOURCE_DIR "/.git") &&
                      std::system("git -C '" PLEAT_SOURCE_DIR "' status >/dev/null 2>&1") == 0;
  const std::string commit = in_git ? "commit [0-9a-f]+(, changed)?" : "commit unknown";
  EXPECT_THAT(reader.info().build, ContainsRegex("^pleat [0-9.]+ \\(" + commit + "\\), "));
  EXPECT_THAT(reader.info().history, HasSubstr(reader.info().build));
}

/// A pipe that nobody reads plays a file system that does not answer.
TEST_F(RunFolderTest, AStartThatHangsIsEndedByTheWatchdog) {
  fs::create_directory(path("out"));
  ASSERT_EQ(mkfifo(path("out/deck.toml.tmp").c_str(), 0600), 0);
  const JobResult result = start(2, "out", "run.watchdog=1 parallel.expert=2")->wait();
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("no step for 1 s: in start-up"));
  EXPECT_THAT(result.output, HasSubstr("PL0733"));
}

TEST_F(RunFolderTest, DataThatDoNotOpenAreEndedByTheWatchdog) {
  write("novel.txt", std::string(10000, 'x'));
  for (const int ranks : {1, 2}) {
    const JobResult result =
        start(ranks, "out", "run.watchdog=1 data.format=text data.path=novel.txt",
              {{"PLEAT_TEST_HANG_OPEN", "/novel.txt"}})
            ->wait(std::chrono::seconds(30));
    EXPECT_EQ(result.exit_code, 1) << result.output;
    EXPECT_THAT(result.output, HasSubstr("no step for 1 s: in start-up, opening data"));
    EXPECT_THAT(result.output, HasSubstr("PL0733"));
    EXPECT_FALSE(fs::exists(path("out")));
  }
}

// --- Damage ----------------------------------------------------------------------------------

class DamagedCheckpoint : public RunFolderTest, public ::testing::WithParamInterface<int> {
 protected:
  std::string mapping() const { return GetParam() == 1 ? "" : "parallel.tensor=2"; }
  void SetUp() override {
    RunFolderTest::SetUp();
    complete(GetParam(), "whole", "checkpoint.every=2 " + mapping());
  }
  /// What a run that was killed in step 9 or 10 has.
  void cut_after_eight() const {
    fs::remove_all(path("cut"));
    fs::copy(path("whole"), path("cut"), fs::copy_options::recursive);
    for (const int step : {10, 12}) fs::remove(checkpoint("cut", step));
    std::ofstream(path("cut/checkpoints/LATEST")) << io::checkpoint_name(8) << "\n";
  }
  JobResult resume() const { return complete(GetParam(), "cut", mapping()); }
};

TEST_P(DamagedCheckpoint, TheOneBeforeIsUsedAndAWarningNamesTheFileAndTheFault) {
  const std::uintmax_t size = fs::file_size(checkpoint("whole", 8));
  const std::pair<const char*, std::function<void(const std::string&)>> damages[] = {
      {"truncated", [&](const std::string& file) { fs::resize_file(file, size / 3); }},
      {"empty", [&](const std::string& file) { fs::resize_file(file, 0); }},
      {"another step's content",
       [&](const std::string& file) {
         fs::copy_file(checkpoint("whole", 2), file, fs::copy_options::overwrite_existing);
       }},
      {"a bit of a tensor", [&](const std::string& file) { flip_bit(file, size - 100); }},
      {"no HDF5", [&](const std::string& file) { std::ofstream(file) << "nothing"; }}};
  for (const auto& [name, damage] : damages) {
    SCOPED_TRACE(name);
    cut_after_eight();
    damage(checkpoint("cut", 8));
    const JobResult result = resume();
    EXPECT_EQ(resumed_step(result.output), 6) << result.output;
    EXPECT_THAT(result.output, HasSubstr("WARNING"));
    EXPECT_THAT(result.output, HasSubstr(io::checkpoint_name(8)));
    EXPECT_THAT(result.output, HasSubstr("PL03"));
    expect_same_runs("whole", "cut", kSmallSteps);
  }
}

TEST_P(DamagedCheckpoint, TwoOfThem) {
  cut_after_eight();
  fs::resize_file(checkpoint("cut", 8), 1000);
  flip_bit(checkpoint("cut", 6), fs::file_size(checkpoint("cut", 6)) - 200);
  const JobResult result = resume();
  EXPECT_EQ(resumed_step(result.output), 4) << result.output;
  EXPECT_THAT(result.output, HasSubstr(io::checkpoint_name(6)));
  expect_same_runs("whole", "cut", kSmallSteps);
}

TEST_P(DamagedCheckpoint, AllOfThemEndTheJobAndNothingIsLost) {
  cut_after_eight();
  for (const int step : {2, 4, 6, 8}) fs::resize_file(checkpoint("cut", step), 1000 + step);
  const JobResult result = start(GetParam(), "cut", mapping())->wait();
  EXPECT_EQ(result.exit_code, kBadInput) << result.output;
  EXPECT_THAT(result.output, HasSubstr("PL0312"));
  EXPECT_THAT(result.output, HasSubstr("HINT"));
  EXPECT_EQ(fs::file_size(checkpoint("cut", 8)), 1008u);
  EXPECT_EQ(last_recorded_step(path("cut/metrics.csv")), kSmallSteps);
}

TEST_P(DamagedCheckpoint, LatestThatNamesNothing) {
  cut_after_eight();
  std::ofstream(path("cut/checkpoints/LATEST")) << "step_00000077.h5\n";
  const JobResult result = resume();
  EXPECT_EQ(resumed_step(result.output), 8) << result.output;
  EXPECT_THAT(result.output, HasSubstr("step_00000077.h5"));
  fs::remove_all(path("cut"));
  cut_after_eight();
  fs::remove(path("cut/checkpoints/LATEST"));
  EXPECT_EQ(resumed_step(resume().output), 8);
}

TEST_P(DamagedCheckpoint, ASpoiltLatest) {
  for (const bool is_folder : {false, true}) {
    cut_after_eight();
    const std::string latest = path("cut/checkpoints/LATEST");
    if (is_folder) {
      fs::remove(latest);
      fs::create_directory(latest);
    } else {
      std::ofstream(latest) << std::string(5000, '\0');
    }
    const JobResult result = resume();
    EXPECT_EQ(resumed_step(result.output), 8) << result.output;
    EXPECT_THAT(result.output, HasSubstr("WARNING"));
    EXPECT_THAT(result.output, HasSubstr("cut/checkpoints/LATEST"));
    expect_same_runs("whole", "cut", kSmallSteps);
    EXPECT_EQ(text_of_file(latest), io::checkpoint_name(kSmallSteps) + "\n");
  }
}

TEST_P(DamagedCheckpoint, NewerOnesThanLatestNamesAreTold) {
  cut_after_eight();
  std::ofstream(path("cut/checkpoints/LATEST")) << io::checkpoint_name(4) << "\n";
  const JobResult result = resume();
  EXPECT_EQ(resumed_step(result.output), 4) << result.output;
  EXPECT_THAT(result.output, HasSubstr(io::checkpoint_name(8) + "' is newer"));
  expect_same_runs("whole", "cut", kSmallSteps);
}

TEST_P(DamagedCheckpoint, OneThatIsNamedInTheDeckIsNotReplaced) {
  cut_after_eight();
  fs::resize_file(checkpoint("cut", 8), 3000);
  const JobResult result =
      start(GetParam(), "other", mapping() + " checkpoint.resume=" + checkpoint("cut", 8))
          ->wait();
  EXPECT_EQ(result.exit_code, kBadInput) << result.output;
  EXPECT_THAT(result.output, HasSubstr(io::checkpoint_name(8)));
  EXPECT_FALSE(fs::exists(path("other/metrics.csv")));
}

INSTANTIATE_TEST_SUITE_P(Ranks, DamagedCheckpoint, ::testing::Values(1, 2));

// --- Back to an earlier checkpoint of the own folder -----------------------------------------

/// "out" has all steps, and so has "other": the first five of "out", then others.
class BackInTheOwnFolder : public RunFolderTest {
 protected:
  void SetUp() override {
    RunFolderTest::SetUp();
    complete(1, "out", "");
    complete(1, "other", from_five());
  }
  std::string from_five() const {
    return std::string(kOtherRate) + " checkpoint.resume=" + checkpoint("out", 5);
  }
  void expect_rows_of_other() const {
    const auto other = metrics_columns(path("other/metrics.csv"));
    const auto out = metrics_columns(path("out/metrics.csv"));
    ASSERT_EQ(out.at("step").size(), static_cast<std::size_t>(kSmallSteps));
    for (const char* column : {"step", "loss", "grad_norm", "learning_rate", "tokens"}) {
      const auto& values = out.at(column);
      EXPECT_EQ(std::vector<std::string>(values.begin() + 5, values.end()), other.at(column))
          << column;
    }
  }
  /// The same deck without the path.
  void expect_next_job_goes_on_after(int step) const {
    const JobResult result = complete(1, "out", kOtherRate);
    EXPECT_EQ(resumed_step(result.output), step) << result.output;
    expect_rows_of_other();
  }

  static constexpr const char* kOtherRate = "optimizer.lr=1e-2";
};

TEST_F(BackInTheOwnFolder, KilledBeforeItsFirstCheckpoint) {
  const auto job = start(1, "out", from_five());
  job->pause_after(8);
  ASSERT_TRUE(job->wait_for_pause(8)) << job->wait().output;
  job->signal_all(SIGKILL);
  job->wait();
  expect_next_job_goes_on_after(5);
}

TEST_F(BackInTheOwnFolder, NewerOnesAreSetAside) {
  stop_after("out", 7, from_five());
  EXPECT_EQ(kept("out"), (std::set{5, 7}));
  for (const int step : {10, 12}) {
    EXPECT_EQ(io::CheckpointReader(checkpoint("out", step) + ".old-1").info().step, step);
  }
  expect_next_job_goes_on_after(7);
}

/// Whatever is done of what makes the folder that of the new job, it is one of the two runs.
TEST_F(BackInTheOwnFolder, KilledBeforeEachOperationOnTheWay) {
  fs::rename(path("out"), path("first"));
  const auto first = metrics_columns(path("first/metrics.csv"));
  for (int number = 1; number <= 8; ++number) {
    SCOPED_TRACE(number);
    fs::remove_all(path("out"));
    fs::copy(path("first"), path("out"), fs::copy_options::recursive);
    const JobResult killed = start(1, "out", from_five(),
                                   {{"PLEAT_TEST_FOLDER", checkpoints("out")},
                                    {"PLEAT_TEST_KILL_BEFORE", std::to_string(number)}})
                                 ->wait();
    ASSERT_EQ(killed.exit_code, 128 + SIGKILL) << killed.output;
    const JobResult next = complete(1, "out", kOtherRate);
    if (resumed_step(next.output) == kSmallSteps) {
      EXPECT_EQ(metrics_columns(path("out/metrics.csv")).at("loss"), first.at("loss"));
    } else {
      EXPECT_EQ(resumed_step(next.output), 5) << next.output;
      expect_rows_of_other();
    }
  }
}

/// Such as a file system that could not be read for a while.
TEST_F(RunFolderTest, DamageThatGoesAwayAgainLeavesNoHole) {
  complete(1, "whole", "");
  complete(1, "out", "");
  const auto damage_or_repair = [&] {
    for (const int step : {10, 12}) {
      flip_bit(checkpoint("out", step), fs::file_size(checkpoint("out", step)) - 100);
    }
  };
  damage_or_repair();
  const auto job = start(1, "out", "");
  job->pause_after(8);
  ASSERT_TRUE(job->wait_for_pause(8)) << job->wait().output;
  job->signal_all(SIGKILL);
  job->wait();
  damage_or_repair();
  EXPECT_EQ(resumed_step(complete(1, "out", "").output), 5);
  expect_same_runs("whole", "out", kSmallSteps);
}

// --- Changed decks ---------------------------------------------------------------------------

TEST_F(RunFolderTest, FreeChangesAreTold) {
  complete(1, "whole", "");
  stop_after("out", 6);
  const JobResult result = complete(1, "out", "output.every=1 checkpoint.keep=5 run.watchdog=100");
  EXPECT_THAT(result.output, HasSubstr("checkpoint.keep"));
  EXPECT_THAT(result.output, HasSubstr("run.watchdog"));
  EXPECT_THAT(result.output, Not(HasSubstr("WARNING")));
  expect_same_runs("whole", "out", kSmallSteps);
}

TEST_F(RunFolderTest, AnUnchangedDeckIsNoMatter) {
  stop_after("out", 6);
  const JobResult result = complete(1, "out", "");
  EXPECT_THAT(result.output, Not(HasSubstr("WARNING")));
  EXPECT_THAT(result.output, Not(HasSubstr("since the checkpoint")));
}

TEST_F(RunFolderTest, ChangesOfTheMathematicsAreWarnings) {
  complete(1, "whole", "");
  stop_after("out", 6);
  const JobResult result = complete(1, "out", "optimizer.lr=1e-2");
  EXPECT_THAT(result.output, HasSubstr("WARNING: optimizer.lr"));
  const auto before = metrics_columns(path("whole/metrics.csv")).at("learning_rate");
  const auto after = metrics_columns(path("out/metrics.csv")).at("learning_rate");
  ASSERT_EQ(after.size(), before.size());
  EXPECT_EQ(after[5], before[5]);
  EXPECT_NE(after[6], before[6]) << "the new deck holds";
}

TEST_F(RunFolderTest, AnotherModelIsRefusedWithAllDifferences) {
  stop_after("out", 6);
  const std::string deck = text_of_file(path("out/deck.toml"));
  const std::string metrics = text_of_file(path("out/metrics.csv"));
  const std::string log = text_of_file(path("out/run.log"));
  const JobResult result =
      start(1, "out", "model.hidden=40 run.seed=8 optimizer.lr=1e-2 output.every=2")->wait();
  EXPECT_EQ(result.exit_code, kBadInput) << result.output;
  for (const char* text : {"PL0732", "model.hidden was 32, is 40", "run.seed was 7, is 8",
                           "optimizer.lr", "output.every", "HINT"}) {
    EXPECT_THAT(result.output, HasSubstr(text));
  }
  EXPECT_EQ(text_of_file(path("out/deck.toml")), deck);
  EXPECT_EQ(text_of_file(path("out/metrics.csv")), metrics);
  EXPECT_EQ(text_of_file(path("out/run.log")), log);
  complete(1, "out", "");
}

TEST_F(RunFolderTest, AnotherMappingIsFree) {
  stop_after("out", 6);
  const JobResult result =
      complete(2, "out", "parallel.tensor=2 parallel.expert=2 parallel.dispatcher=allgather");
  EXPECT_THAT(result.output, Not(HasSubstr("WARNING")));
  EXPECT_EQ(resumed_step(result.output), 6);
}

// --- Which stay ------------------------------------------------------------------------------

TEST_F(RunFolderTest, TheNewestAndEachSoManyStay) {
  complete(1, "all", "checkpoint.every=2");
  EXPECT_EQ(kept("all"), (std::set{2, 4, 6, 8, 10, 12}));
  complete(1, "newest", "checkpoint.every=1 checkpoint.keep=2");
  EXPECT_EQ(kept("newest"), (std::set{11, 12}));
  complete(1, "each", "checkpoint.every=1 checkpoint.keep=2 checkpoint.keep_every=5");
  EXPECT_EQ(kept("each"), (std::set{5, 10, 11, 12}));
}

TEST_F(RunFolderTest, TheSameStayWhenTheRunIsInterrupted) {
  const std::string keep = "checkpoint.every=1 checkpoint.keep=2 checkpoint.keep_every=5";
  stop_after("out", 3, keep);
  stop_after("out", 7, keep);
  EXPECT_EQ(kept("out"), (std::set{5, 6, 7}));
  complete(1, "out", keep);
  EXPECT_EQ(kept("out"), (std::set{5, 10, 11, 12}));
}

// --- Another folder's checkpoint -------------------------------------------------------------

TEST_F(RunFolderTest, FromAnotherRunsCheckpoint) {
  complete(1, "a", "checkpoint.every=2");
  const std::string resume = "checkpoint.resume=" + checkpoint("a", 4);
  const JobResult result = complete(1, "b", resume);
  EXPECT_EQ(resumed_step(result.output), 4);
  const auto a = metrics_columns(path("a/metrics.csv"));
  const auto b = metrics_columns(path("b/metrics.csv"));
  ASSERT_EQ(b.at("step").size(), 8u);
  EXPECT_EQ(b.at("step").front(), "5");
  for (const char* column : {"loss", "grad_norm", "tokens"}) {
    const auto& whole = a.at(column);
    EXPECT_EQ(b.at(column), std::vector<std::string>(whole.begin() + 4, whole.end()));
  }
  EXPECT_EQ(kept("a"), (std::set{2, 4, 6, 8, 10, 12})) << "the other folder is left alone";
}

/// The same command again, as a batch system gives it, must not begin at the other run's
/// checkpoint again.
TEST_F(RunFolderTest, FromAnotherRunsCheckpointInSeveralJobs) {
  complete(1, "a", "checkpoint.every=2");
  const std::string resume = "checkpoint.resume=" + checkpoint("a", 4);
  complete(1, "b", resume);
  stop_after("c", 7, resume);
  const JobResult result = complete(1, "c", resume);
  EXPECT_EQ(resumed_step(result.output), 7) << result.output;
  const auto b = metrics_columns(path("b/metrics.csv"));
  const auto c = metrics_columns(path("c/metrics.csv"));
  EXPECT_EQ(b.at("step"), c.at("step"));
  EXPECT_EQ(b.at("loss"), c.at("loss"));
}

TEST_F(RunFolderTest, HistoryTellsOfEachJob) {
  stop_after("out", 3);
  stop_after("out", 6);
  complete(2, "out", "parallel.expert=2");
  const std::string history = io::CheckpointReader(checkpoint("out", 12)).info().history;
  for (const char* part : {"from step 0 on 1 rank ", "from step 3 on 1 rank ",
                           "from step 6 on 2 ranks "}) {
    EXPECT_THAT(history, HasSubstr(part));
  }
  EXPECT_EQ(std::count(history.begin(), history.end(), '\n'), 2);
  EXPECT_THAT(pleat("inspect out/checkpoints/step_00000012.h5").output,
              HasSubstr("from step 6 on 2 ranks"));
}

}  // namespace
}  // namespace pleat::test
