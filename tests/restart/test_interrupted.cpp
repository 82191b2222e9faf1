// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Runs that are interrupted, at every step and in every way, and continued on the same
/// mapping are bitwise the run that was not.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <span>
#include <thread>

#include "restart_run.hpp"

namespace pleat::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

enum class Way { kKillOne, kKillAll, kTerminate, kUserSignal, kStopFile, kWallLimit, kTwice };

constexpr int kStoppedEarly = 75;

class Interrupted : public RestartTest {
 protected:
  /// Goes on with a run and interrupts it after the row of a step was written, before anything
  /// else of it.
  void interrupt(int ranks, const std::string& run, const std::string& overrides, Way way,
                 int step) {
    SCOPED_TRACE(testing::Message() << "way " << static_cast<int>(way) << " in step " << step);
    const Clock::time_point begun = Clock::now();
    const auto job = start(ranks, run, way == Way::kWallLimit
                                           ? overrides + " run.wall_limit=2s"
                                           : overrides);
    job->pause_after(step);
    const bool waits = job->wait_for_pause(step);
    if (way != Way::kWallLimit) {
      ASSERT_TRUE(waits) << job->wait().output;
    }
    if (way == Way::kTwice) {
      interrupt_twice(*job, ranks);
      return;
    }
    apply(*job, run, way, step % ranks, begun);
    job->go_on(step);
    const JobResult result = job->wait();
    if (way == Way::kKillOne || way == Way::kKillAll) {
      EXPECT_NE(result.exit_code, 0);
      EXPECT_NE(result.exit_code, kStoppedEarly) << result.output;
      return;
    }
    EXPECT_EQ(result.exit_code, kStoppedEarly) << result.output;
    EXPECT_FALSE(fs::exists(path(run + "/STOP")));
    EXPECT_EQ(resumable_step(run), last_recorded_step(path(run + "/metrics.csv")));
    if (waits) {
      // The others may have come to the boundary already when one of them is asked.
      const bool asked_late = way == Way::kTerminate && step % ranks > 0;
      EXPECT_GE(resumable_step(run), step) << result.output;
      EXPECT_LE(resumable_step(run), step + (asked_late ? 1 : 0))
          << "not at the next step boundary\n" << result.output;
    }
  }

  void apply(Job& job, const std::string& run, Way way, int rank,
             Clock::time_point begun) const {
    if (way == Way::kKillOne) job.signal(SIGKILL, rank);
    if (way == Way::kKillAll) job.signal_all(SIGKILL);
    if (way == Way::kTerminate) job.signal(SIGTERM, rank);
    if (way == Way::kUserSignal) job.signal_all(SIGUSR1);
    if (way == Way::kStopFile) std::ofstream(path(run + "/STOP"));
    if (way == Way::kWallLimit) std::this_thread::sleep_until(begun + 1500ms);
  }

  /// The run stands still: nothing but the signal itself can end it.
  void interrupt_twice(Job& job, int ranks) {
    job.signal(SIGTERM, ranks - 1);
    std::this_thread::sleep_for(1300ms);  // closer together they are one request
    EXPECT_TRUE(job.runs()) << "the first signal asks for a checkpoint";
    const Clock::time_point second = Clock::now();
    job.signal(SIGTERM, ranks - 1);
    const JobResult result = job.wait(20s);
    EXPECT_LT(Clock::now() - second, 5s);
    EXPECT_NE(result.exit_code, kStoppedEarly) << result.output;
    EXPECT_NE(result.exit_code, 0) << result.output;
    if (ranks == 1) {
      EXPECT_EQ(result.exit_code, 128 + SIGTERM);
    }
  }
};

// --- One rank: every step -------------------------------------------------------------------

class InterruptedOneRank : public Interrupted, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    Interrupted::SetUp();
    overrides_ = std::string("precision.compute=") + GetParam();
    complete(1, "whole", overrides_);
  }
  std::string overrides_;
};

TEST_P(InterruptedOneRank, AtEveryStep) {
  std::vector<Way> ways{Way::kKillAll, Way::kTerminate, Way::kUserSignal, Way::kStopFile};
  for (int step = 1; step < kSmallSteps; ++step) {
    std::rotate(ways.begin(), ways.begin() + 1, ways.end());
    // In fp64 each way at each step, else another way at each step.
    const std::size_t count = GetParam() == std::string("fp64") ? ways.size() : 1;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string every = ways[i] == Way::kKillAll ? " checkpoint.every=1" : "";
      interrupt(1, "cut", overrides_ + every, ways[i], step);
      complete(1, "cut", overrides_);
      expect_same_runs("whole", "cut", kSmallSteps);
      ASSERT_FALSE(HasFailure()) << "way " << static_cast<int>(ways[i]) << " in step " << step;
      fs::remove_all(path("cut"));
    }
  }
}

TEST_P(InterruptedOneRank, AfterEachStepOfOneRun) {
  for (int step = 1; step < kSmallSteps; ++step) {
    fs::create_directories(path("cut"));
    std::ofstream(path("cut/STOP"));  // it is there before the job is
    const JobResult result = start(1, "cut", overrides_)->wait();
    ASSERT_EQ(result.exit_code, kStoppedEarly) << result.output;
    ASSERT_EQ(resumable_step("cut"), step) << result.output;
  }
  complete(1, "cut", overrides_);
  expect_same_runs("whole", "cut", kSmallSteps);
}

TEST_P(InterruptedOneRank, ByWallLimitAndBySecondSignal) {
  interrupt(1, "cut", overrides_ + " checkpoint.every=1", Way::kTwice, 3);
  interrupt(1, "cut", overrides_, Way::kWallLimit, 6);
  interrupt(1, "cut", overrides_ + " checkpoint.every=1", Way::kTwice, 9);
  complete(1, "cut", overrides_);
  expect_same_runs("whole", "cut", kSmallSteps);
}

INSTANTIATE_TEST_SUITE_P(Precisions, InterruptedOneRank,
                         ::testing::Values("fp64", "fp32", "bf16"),
                         [](const auto& info) { return std::string(info.param); });

// --- Several ranks: every step and every way in one run ----------------------------------------------------

class InterruptedRanks : public Interrupted,
                         public ::testing::WithParamInterface<std::pair<RunMapping, const char*>> {
};

TEST_P(InterruptedRanks, AtEveryStepOfOneRun) {
  const auto [mapping, precision] = GetParam();
  const std::string overrides =
      std::string(mapping.overrides) + " precision.compute=" + precision;
  complete(mapping.ranks, "whole", overrides);
  const std::string often = overrides + " checkpoint.every=2";
  // SIGTERM goes to one rank, at steps 4 and 8 to the first one: a job whose other ranks have
  // come to the boundary already would go on for a step, and that one would be left out.
  constexpr Way kWays[] = {Way::kKillAll,    Way::kUserSignal, Way::kStopFile, Way::kTerminate,
                           Way::kKillOne,    Way::kKillAll,    Way::kUserSignal,
                           Way::kTerminate,  Way::kWallLimit,  Way::kTwice,    Way::kKillOne};
  static_assert(std::size(kWays) == kSmallSteps - 1);
  for (int step = 1; step < kSmallSteps; ++step) {
    interrupt(mapping.ranks, "cut", often, kWays[step - 1], step);
    ASSERT_FALSE(HasFailure());
  }
  complete(mapping.ranks, "cut", overrides);
  expect_same_runs("whole", "cut", kSmallSteps);
}

constexpr RunMapping kTwoRanks[] = {
    {"Data", 2, ""},
    {"ShardedData", 2, "parallel.sharding=parameters"},
    {"TensorExpert", 2, "parallel.tensor=2 parallel.expert=2"},
    {"Pipeline", 2, "parallel.pipeline=2"},
    {"ContextExpertTensor", 2, "parallel.context=2 parallel.expert_tensor=2"}};

constexpr RunMapping kFourRanks[] = {
    {"TensorExpert", 4, "parallel.tensor=2 parallel.expert=2"},
    {"InterleavedPipeline", 4,
     "parallel.pipeline=2 parallel.schedule=interleaved parallel.tensor=2 "
     "parallel.expert_tensor=2"},
    {"ShardedDataExpert", 4,
     "parallel.sharding=parameters parallel.expert=4 parallel.dispatcher=allgather"},
    {"ContextTensor", 4, "parallel.context=2 parallel.tensor=2 parallel.expert=4"}};

/// Each mapping in one of the precisions; the first one in all.
std::vector<std::pair<RunMapping, const char*>> cases(std::span<const RunMapping> mappings) {
  constexpr const char* kPrecisions[] = {"fp64", "fp32", "bf16"};
  std::vector<std::pair<RunMapping, const char*>> all;
  for (std::size_t i = 0; i < mappings.size(); ++i) {
    all.emplace_back(mappings[i], kPrecisions[i % 3]);
    if (i == 0) {
      all.emplace_back(mappings[i], "fp32");
      all.emplace_back(mappings[i], "bf16");
    }
  }
  return all;
}

std::string case_name(const testing::TestParamInfo<std::pair<RunMapping, const char*>>& info) {
  return std::string(info.param.first.name) + "_" + info.param.second;
}

INSTANTIATE_TEST_SUITE_P(Two, InterruptedRanks, ::testing::ValuesIn(cases(kTwoRanks)), case_name);
INSTANTIATE_TEST_SUITE_P(Four, InterruptedRanks, ::testing::ValuesIn(cases(kFourRanks)),
                         case_name);

}  // namespace
}  // namespace pleat::test
