// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief A run that is killed, or asked to stop, again and again at random moments, mostly while
/// a checkpoint is being written. Over the rank counts it is killed 200 times.
///
/// The environment says on how many ranks (PLEAT_TEST_RANKS) and how often it is killed
/// (PLEAT_TEST_KILLS) and signalled (PLEAT_TEST_SIGNALS).

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <sys/inotify.h>

#include "killing.hpp"
#include "pleat/base/random.hpp"
#include "restart_run.hpp"

namespace pleat::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr int kSteps = 60;
constexpr int kEvery = 2;
constexpr int kStoppedEarly = 75;

constexpr const char* kTinyDeck = R"(
[run]
steps = 60
seed = 3
[model]
layers = 2
hidden = 16
heads = 2
vocab = 64
[moe]
experts = 4
ffn = 16
aux_loss.coeff = 0.01
[batch]
sequence = 8
micro = 1
global = 4
[optimizer]
lr = 1e-3
[data]
format = "synthetic"
synthetic_samples = 37
[checkpoint]
every = 2
keep = 3
)";

/// Kinds of moments; a delay after each is drawn up to the given time.
struct Strike {
  Moment moment;
  std::chrono::microseconds longest_delay;
};
const Strike kStrikes[] = {
    {{"the file is made", IN_CREATE, ".h5.tmp"}, 5000us},
    {{"the file is being filled", IN_MODIFY, ".h5.tmp"}, 3000us},
    {{"the file is closed", IN_CLOSE_WRITE, ".h5.tmp"}, 1000us},
    {{"the file has its name", IN_MOVED_TO, ".h5"}, 300us},
    {{"LATEST is made", IN_CREATE, "LATEST.tmp"}, 200us},
    {{"LATEST has moved", IN_MOVED_TO, "LATEST"}, 1000us},
    {{"an old one is removed", IN_DELETE, ".h5"}, 200us}};

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

class Killed : public RestartTest {
 protected:
  void SetUp() override {
    RestartTest::SetUp();
    write("deck.toml", kTinyDeck);
    if (ranks_ == 2) overrides_ = "parallel.expert=2";
    if (ranks_ == 4) overrides_ = "parallel.tensor=2 parallel.expert=2";
    const auto begun = std::chrono::steady_clock::now();
    complete(ranks_, "whole", overrides_);
    whole_time_ = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now() - begun);
  }

  /// Between 0 and `most`.
  template <class Duration>
  Duration drawn(Duration most) {
    return std::chrono::duration_cast<Duration>(most * random_.uniform(draw_++));
  }
  int drawn_below(int count) {
    return static_cast<int>(random_.uniform(draw_++) * static_cast<double>(count));
  }

  /// Runs the job until it is struck. \return false: it came to its end before
  bool strike(Job& job, int number) {
    constexpr int kKinds = static_cast<int>(std::size(kStrikes));
    const int kind = drawn_below(kKinds + 1);
    if (kind < kKinds) {
      const Strike& strike = kStrikes[kind];
      FolderWatch watch(checkpoints("cut"));
      const int times = 1 + drawn_below(4);
      job.wait_for_ranks();
      if (!watch.wait(strike.moment, times, job)) return false;
      std::this_thread::sleep_for(drawn(strike.longest_delay));
    } else {
      std::this_thread::sleep_for(drawn(whole_time_));
    }
    if (!job.runs()) return false;
    if (drawn_below(2) == 0) {
      job.signal_all(number);
    } else {
      job.signal(number, drawn_below(ranks_));
    }
    return true;
  }

  /// Between two jobs: which step the next one must go on from, and that this is near enough.
  void look_at_folder() {
    recorded_ = last_recorded_step(path("cut/metrics.csv"));
    resumable_ = resumable_step("cut");
    const std::int64_t lost = recorded_ - resumable_;
    most_lost_ = std::max(most_lost_, lost);
    EXPECT_LE(lost, kEvery) << "row " << recorded_ << ", checkpoint " << resumable_;
    EXPECT_LE(last_logged_step(path("cut/run.log")), recorded_);
  }

  void expect_resumed(const JobResult& result) const {
    const auto resumed = resumed_step(result.output);
    if (resumed) {
      EXPECT_EQ(*resumed, resumable_) << result.output;
    }
    EXPECT_EQ(result.output.find("cannot be used"), std::string::npos) << result.output;
    EXPECT_EQ(result.output.find("PL0"), std::string::npos) << result.output;
  }

  /// A run from its beginning to its end. \return how often it was struck on the way
  int strike_run(int number, int most) {
    fs::remove_all(path("cut"));
    recorded_ = resumable_ = 0;
    int strikes = 0;
    while (!HasFailure()) {
      const auto job = start(ranks_, "cut", overrides_);
      const bool struck = strikes < most && strike(*job, number);
      const JobResult result = job->wait();
      expect_resumed(result);
      if (result.exit_code == 0) break;
      EXPECT_TRUE(struck) << "ended by itself, exit code " << result.exit_code << "\n"
                          << result.output;
      if (number == SIGKILL) {
        EXPECT_NE(result.exit_code, kStoppedEarly) << result.output;
      }
      ++strikes;
      look_at_folder();
      if (result.exit_code == kStoppedEarly) {
        EXPECT_EQ(resumable_, recorded_) << result.output;
      }
    }
    expect_same_runs("whole", "cut", kSteps);
    return strikes;
  }

  void strike_runs(int number, int total) {
    int strikes = 0;
    int runs = 0;
    while (strikes < total && !HasFailure()) {
      strikes += strike_run(number, total - strikes);
      ++runs;
    }
    std::printf("%d ranks: struck %d times in %d runs, at most %d steps lost (every %d)\n",
                ranks_, strikes, runs, static_cast<int>(most_lost_), kEvery);
  }

  int ranks_ = from_environment("PLEAT_TEST_RANKS", 1);
  std::string overrides_;
  std::chrono::microseconds whole_time_{};
  CounterRandom random_{20260301, static_cast<std::uint64_t>(ranks_)};
  std::uint64_t draw_ = 0;
  std::int64_t recorded_ = 0;
  std::int64_t resumable_ = 0;
  std::int64_t most_lost_ = 0;
};

TEST_F(Killed, ByKill) { strike_runs(SIGKILL, from_environment("PLEAT_TEST_KILLS", 10)); }

TEST_F(Killed, BySigterm) { strike_runs(SIGTERM, from_environment("PLEAT_TEST_SIGNALS", 5)); }

}  // namespace
}  // namespace pleat::test
