// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The script of pleat batch under a real Slurm: a run that is stopped by the end of
/// its time, by a signal or by the loss of its node is, in the end, bitwise the run that was
/// not.
#include "slurm/slurm_test.hpp"

namespace pleat::test {
namespace {

using testing::HasSubstr;
using testing::Not;

// Two ranks with a tensor and an expert group; the router and the data order have state.
constexpr const char* kDeck = R"(
[run]
name = "austen"
seed = 7
steps = {}
[model]
layers = 2
hidden = 64
heads = 4
kv_heads = 2
vocab = 256
[moe]
experts = 4
ffn = 64
aux_loss.coeff = 0.01
[batch]
sequence = 64
micro = 2
global = 8
[parallel]
expert = 2
[optimizer]
lr = 5e-3
warmup = 2
[data]
format = "synthetic"
synthetic_samples = 50
[checkpoint]
every = 20
keep = 3
)";

// The ranks may outnumber the free cores: they, not their launcher, preload the shim.
constexpr const char* kMachine = R"(
[machine]
title = "a node of the test"
[launch]
launcher = "{}"
wrapper = ["env", "OMP_NUM_THREADS=1", "LD_PRELOAD={}"]
)";

class SlurmRun : public SlurmTest {
 protected:
  void SetUp() override {
    SlurmTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (steps_ == 0) train_the_whole_run();
    write("deck.toml", fmt::format(kDeck, steps_));
  }

  /// Once for all tests: the uninterrupted run, long enough to be interrupted.
  void train_the_whole_run() {
    for (std::int64_t steps = 100; seconds_ < 5.0; steps *= 3) {
      write("deck.toml", fmt::format(kDeck, steps));
      std::filesystem::remove_all(whole_run());
      const auto start = std::chrono::steady_clock::now();
      const std::string output =
          shell(fmt::format("{} '{}' train deck.toml run.output='{}'", mpiexec(2),
                            PLEAT_PROGRAM, whole_run()));
      seconds_ =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      ASSERT_EQ(read_metrics(whole_run() + "/metrics.csv")["step"].size(),
                static_cast<std::size_t>(steps))
          << output;
      steps_ = steps;
    }
  }
  static std::string whole_run() { return scratch_ + "/whole"; }

  /// Writes the script of the job that trains into runs/austen.
  void make_script(const std::string& launcher, const std::string& time = "10m") const {
    write("machine.toml", fmt::format(kMachine, launcher, PLEAT_TEST_PRELOAD));
    const CommandResult made = pleat(
        "batch deck.toml --system slurm --machine machine.toml --ranks-per-node 2 "
        "--output job.sh --time " +
        time);
    ASSERT_EQ(made.exit_code, 0) << made.output;
  }
  std::string log_of(const std::string& job) const {
    return read_file(path("austen-" + job + ".log"));
  }
  std::int64_t newest_step() const {
    const std::string name = read_file(path("runs/austen/checkpoints/LATEST"));
    return name.size() < 13 ? 0 : std::stoll(name.substr(5, 8));
  }
  void wait_for_progress(std::int64_t step) const {
    EXPECT_TRUE(wait_until([&] { return newest_step() >= step; }, 120));
  }

  void expect_bitwise_the_whole_run() const {
    const std::string last = "/checkpoints/" + io::checkpoint_name(steps_);
    const io::CheckpointReader whole(whole_run() + last);
    const io::CheckpointReader pieces(path("runs/austen" + last));
    EXPECT_EQ(whole.info().next_sample, pieces.info().next_sample);
    for (const auto group : {io::TensorGroup::kParameters, io::TensorGroup::kFirstMoment,
                             io::TensorGroup::kSecondMoment}) {
      ASSERT_FALSE(whole.names(group).empty());
      for (const std::string& name : whole.names(group))
        EXPECT_EQ(whole.read_raw(group, name), pieces.read_raw(group, name)) << name;
    }
    const auto first = read_metrics(whole_run() + "/metrics.csv");
    const auto second = read_metrics(path("runs/austen/metrics.csv"));
    for (const char* column : {"step", "loss", "loss_ce", "loss_aux", "learning_rate",
                               "grad_norm", "tokens", "expert_imbalance"}) {
      ASSERT_EQ(first.at(column).size(), static_cast<std::size_t>(steps_)) << column;
      EXPECT_EQ(first.at(column), second.at(column)) << column;
    }
    const CommandResult inspected = pleat("inspect runs/austen" + last);
    EXPECT_EQ(inspected.exit_code, 0) << inspected.output;
  }

  /// The job went through at least one requeue, and the run is whole.
  void expect_finished_after_restarts(const std::string& job) const {
    EXPECT_EQ(wait_for_end(job), "COMPLETED") << log_of(job) << slurm_->log();
    EXPECT_GE(std::stoi("0" + field(job, "Restarts")), 1) << log_of(job);
    EXPECT_THAT(log_of(job), HasSubstr("the run is complete"));
    expect_bitwise_the_whole_run();
  }

  static inline std::int64_t steps_ = 0;
  static inline double seconds_ = 0.0;
};

TEST_F(SlurmRun, TheTimeOfTheJobStopsItAndItQueuesItselfAgainUntilItIsComplete) {
  make_script("srun", "1m");
  EXPECT_THAT(read_file(path("job.sh")), HasSubstr("run.wall_limit=$((50 - SECONDS))"));
  const std::string job = submit("job.sh");
  wait_for_progress(20);
  // It would be complete before its time is over, so it stands still meanwhile. Slurm's
  // signal, which comes 10 s to a minute ahead of the end, makes it go on and stop; if none
  // came, the limit that the script has set would be over.
  EXPECT_EQ(shell("scancel --signal=STOP " + job), "");
  EXPECT_TRUE(wait_until(
      [&] { return field(job, "Restarts") == "1" || field(job, "RunTime") > "00:00:50"; },
      90));
  if (field(job, "Restarts") == "0") shell("scancel --signal=CONT " + job);
  expect_finished_after_restarts(job);
  EXPECT_THAT(log_of(job),
              testing::AnyOf(HasSubstr("run.wall_limit: stopping after step"),
                             HasSubstr("a signal (SIGTERM or SIGUSR1): stopping after")));
  EXPECT_THAT(log_of(job), HasSubstr(": queued again"));
}

TEST_F(SlurmRun, ASignalToTheStepReachesTheRanks) {
  make_script("srun");
  EXPECT_THAT(read_file(path("job.sh")), HasSubstr("#SBATCH --signal=USR1@10\n"));
  const std::string job = submit("job.sh");
  wait_for_progress(20);
  // What --signal=USR1@10 does when its time comes: the tasks get it, the script does
  // not.
  EXPECT_EQ(shell("scancel --signal=USR1 " + job), "");
  expect_finished_after_restarts(job);
  EXPECT_THAT(log_of(job), HasSubstr("queued again"));
}

TEST_F(SlurmRun, ASignalToTheScriptIsPassedOnToTheRanks) {
  make_script("mpiexec");
  EXPECT_THAT(read_file(path("job.sh")), HasSubstr("#SBATCH --signal=B:USR1@10\n"));
  const std::string job = submit("job.sh");
  wait_for_progress(20);
  EXPECT_EQ(shell("scancel --batch --signal=USR1 " + job), "");
  expect_finished_after_restarts(job);
  EXPECT_THAT(log_of(job), HasSubstr("queued again"));
}

TEST_F(SlurmRun, TheLossOfItsNodeCostsNoMoreThanTheStepsSinceTheLastCheckpoint) {
  make_script("srun");
  const std::string job = submit("job.sh");
  wait_for_progress(20);
  const std::string node = shell("sinfo --noheader --format=%N");
  EXPECT_EQ(shell("scontrol update nodename=" + node + " state=down reason=test"), "");
  EXPECT_TRUE(wait_until([&] { return field(job, "JobState") == "PENDING"; }, 60));
  // Slurm still ends what the job left on the node, and would end its next start as well.
  EXPECT_TRUE(wait_until(
      [&] { return shell("pgrep -f 'slurmstepd: [[]" + job + "[.]'") == ""; }, 60));
  std::this_thread::sleep_for(std::chrono::seconds(8));
  EXPECT_EQ(shell("scontrol update nodename=" + node + " state=resume"), "");
  expect_finished_after_restarts(job);
}

TEST_F(SlurmRun, ACancelledJobStaysCancelled) {
  make_script("srun");
  const std::string job = submit("job.sh");
  wait_for_progress(20);
  EXPECT_EQ(shell("scancel " + job), "");
  EXPECT_EQ(wait_for_end(job), "CANCELLED");
  EXPECT_TRUE(wait_until([&] { return shell("squeue --noheader") == ""; }, 60));
  EXPECT_EQ(field(job, "Restarts"), "0");
  EXPECT_THAT(log_of(job), Not(HasSubstr(": queued again")));
  // Another job goes on from there.
  const std::string next = submit("job.sh");
  EXPECT_EQ(wait_for_end(next), "COMPLETED") << log_of(next);
  expect_bitwise_the_whole_run();
}

}  // namespace
}  // namespace pleat::test
