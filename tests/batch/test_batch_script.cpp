// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief What the scripts do: they run here, with stand-ins for the commands of the
/// batch systems and for pleat. tests/slurm runs them under a real Slurm.
#include "batch/batch_test.hpp"

namespace pleat::test {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Starts what follows the path of the program, as a launcher would on one rank.
constexpr const char* kLauncher = R"(#!/bin/bash
while (($#)) && [[ $1 != *"/stand-in pleat" ]]; do shift; done
exec "$@"
)";

/// Trains as the file `plan` says: each line is "EXIT_CODE STEP", STEP that of the
/// checkpoint it leaves. A line serves one start. The file `steps` has those of the deck.
constexpr const char* kProgram = R"bash(#!/bin/bash
echo "$@" >>"$TEST/started"
[[ $1 == check ]] && exit "$(cat "$TEST/check")"
read -r code step <"$TEST/plan"
sed -i 1d "$TEST/plan"
printf '[run]\nname = "austen"\nsteps = %d\n\n[model]\nsteps = 1\n' "$(cat "$TEST/steps")" \
  >runs/austen/deck.toml
[[ $step ]] && printf 'step_%08d.h5\n' "$step" >runs/austen/checkpoints/LATEST
exit "$code"
)bash";

class BatchScript : public BatchTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    BatchTest::SetUp();
    std::filesystem::create_directories(path("bin"));
    std::filesystem::create_directories(path("runs/austen/checkpoints"));
    for (const char* name : {"srun", "mpiexec"}) command(name, kLauncher);
    command("flux", std::string("#!/bin/bash\nif [[ $1 == --parent ]]; then echo \"flux "
                                "$*\" >>\"$TEST/queued\"; exit; fi\n") +
                        kLauncher);
    command("qsub", "#!/bin/bash\necho \"qsub $*\" >>\"$TEST/queued\"\n");
    command("scontrol", "#!/bin/bash\necho \"scontrol $*\" >>\"$TEST/queued\"\n");
    command("squeue", "#!/bin/bash\ncat \"$TEST/state\"\n");
    command("stand-in pleat", kProgram);
    write("check", "0");
    write("steps", "100");
    write("state", "RUNNING");
    const CommandResult made = batch(fmt::format(
        "--machine laptop --system {} --ranks-per-node 4 --output 'my job.sh' --program "
        "'{}' 'run.name=austen'",
        GetParam(), path("bin/stand-in pleat")));
    ASSERT_EQ(made.exit_code, 0) << made.output;
  }

  void command(const std::string& name, const std::string& text) const {
    write("bin/" + name, text);
    std::filesystem::permissions(path("bin/" + name), std::filesystem::perms::owner_all);
  }

  /// Runs the script as the batch system would, in another folder.
  CommandResult run(const std::string& plan) const {
    write("plan", plan);
    return run_command(fmt::format(
        "cd / && TEST='{0}' PATH='{0}/bin':$PATH SLURM_JOB_ID=17 bash '{0}/my job.sh'",
        folder_.string()));
  }
  std::string queued() const { return read_file(path("queued")); }
};

TEST_P(BatchScript, ACompleteRunEndsTheJob) {
  const CommandResult job = run("0 100\n");
  EXPECT_EQ(job.exit_code, 0) << job.output;
  EXPECT_THAT(job.output, HasSubstr("the run is complete"));
  EXPECT_EQ(queued(), "");
  // The check comes first, with the ranks of the job and the settings.
  EXPECT_THAT(read_file(path("started")),
              testing::MatchesRegex("check deck.toml --ranks 4 run.name=austen\n"
                                    "train deck.toml run.name=austen "
                                    "run.wall_limit=142[0-9]+\n"));
}

TEST_P(BatchScript, AStoppedRunIsQueuedAgain) {
  const CommandResult job = run("75 40\n");
  EXPECT_THAT(job.output, HasSubstr("stopped after step_00000040.h5: queued again"));
  const std::string script = path("my job.sh");
  const std::map<std::string, std::string> expected = {
      {"slurm", "scontrol requeue 17\n"},
      {"pbs", "qsub " + script + "\n"},
      {"flux", "flux --parent batch " + script + "\n"}};
  EXPECT_EQ(queued(), expected.at(GetParam()));
}

TEST_P(BatchScript, ARunThatWasToldToStopIsNotQueuedAgain) {
  std::filesystem::create_directories(path("runs/austen"));
  write("runs/austen/STOPPED", "");
  const CommandResult job = run("75 40\n");
  EXPECT_EQ(job.exit_code, 75);
  EXPECT_THAT(job.output, HasSubstr("the file STOP has ended the run"));
  EXPECT_EQ(queued(), "");
}

TEST_P(BatchScript, ALauncherThatLosesTheExitCodeDoesNotEndTheRun) {
  const CommandResult job = run("0 40\n");
  EXPECT_THAT(job.output, HasSubstr("only 40 of 100 steps are saved: taken for a stop"));
  EXPECT_THAT(job.output, HasSubstr("stopped after step_00000040.h5: queued again"));
  EXPECT_THAT(job.output, Not(HasSubstr("complete")));
}

TEST_P(BatchScript, TheDeckMayAskForMoreOrFewerStepsThanWhenTheScriptWasWritten) {
  write("steps", "120");
  EXPECT_THAT(run("0 100\n").output, HasSubstr("only 100 of 120 steps are saved"));
  std::filesystem::remove(path("queued"));
  EXPECT_THAT(run("0 120\n").output, HasSubstr("the run is complete"));
  write("steps", "8");  // fewer than are done
  EXPECT_THAT(run("0\n").output, HasSubstr("the run is complete"));
  EXPECT_EQ(queued(), "");
}

TEST_P(BatchScript, ARunThatSavedNothingNewIsNotQueuedAgain) {
  run("75 40\n");
  std::filesystem::remove(path("queued"));
  const CommandResult job = run("75 40\n");
  EXPECT_EQ(job.exit_code, 75);
  EXPECT_THAT(job.output, HasSubstr("no step since step_00000040.h5"));
  EXPECT_EQ(queued(), "");
}

TEST_P(BatchScript, OtherExitCodesEndTheJob) {
  for (const int code : {1, 2, 3, 4, 137}) {
    const CommandResult job = run(fmt::format("{} 40\n", code));
    EXPECT_EQ(job.exit_code, code) << job.output;
    EXPECT_THAT(job.output, HasSubstr(fmt::format("exit code {}", code)));
  }
  EXPECT_EQ(queued(), "");
}

TEST_P(BatchScript, ADeckThatDoesNotFitEndsTheJobBeforeItStarts) {
  write("check", "2");
  const CommandResult job = run("0 100\n");
  EXPECT_EQ(job.exit_code, 2);
  EXPECT_THAT(job.output, HasSubstr("nothing was started"));
  EXPECT_THAT(read_file(path("started")), Not(HasSubstr("train")));
  EXPECT_EQ(queued(), "");
}

TEST_P(BatchScript, AJobThatTheBatchSystemEndsStaysEnded) {
  if (std::string(GetParam()) == "slurm") {
    write("state", "CANCELLED");
  } else {
    // The signal comes to the whole job; the stand-in takes it as pleat does.
    command("stand-in pleat", std::string("#!/bin/bash\n[[ $1 == check ]] && exit 0\n"
                                          "trap : TERM; kill -TERM $PPID; sleep 0.2\n") +
                                  kProgram);
  }
  const CommandResult job = run("75 40\n");
  EXPECT_EQ(job.exit_code, 75);
  EXPECT_THAT(job.output, HasSubstr("ends this job"));
  EXPECT_EQ(queued(), "");
}

INSTANTIATE_TEST_SUITE_P(Systems, BatchScript, ::testing::Values("slurm", "pbs", "flux"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace pleat::test
