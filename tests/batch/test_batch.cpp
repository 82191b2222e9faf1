// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief pleat batch: the scripts for every system and machine against golden texts,
/// what fits into a node, and what is refused.
#include "batch/batch_test.hpp"

namespace pleat::test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos;) {
    text.replace(at, what.size(), by);
    at += by.size();
  }
  return text;
}

bool has_shellcheck() {
  return std::system("command -v shellcheck >/dev/null 2>&1") == 0;
}

// --- Golden texts ---

class BatchGolden
    : public BatchTest,
      public ::testing::WithParamInterface<std::tuple<const char*, const char*>> {};

TEST_P(BatchGolden, TextIsAsAgreedAndBashReadsIt) {
  const auto [system, machine] = GetParam();
  const std::string ranks = std::string(machine) == "laptop" ? "--ranks-per-node 4" : "";
  const CommandResult made = batch(fmt::format(
      "--system {} --machine {} --nodes 2 {} --account abc123 --program "
      "/opt/pleat/bin/pleat "
      "--output 'my job.sh' optimizer.lr=1e-3 'data.path=[\"a b\", \"it'\\''s\"]' 2>&1",
      system, machine, ranks));
  ASSERT_EQ(made.exit_code, 0) << made.output;
  const std::string script = path("my job.sh");
  EXPECT_EQ(std::system(fmt::format("bash -n '{}'", script).c_str()), 0);
  if (has_shellcheck()) {
    EXPECT_EQ(std::system(fmt::format("shellcheck '{}' >&2", script).c_str()), 0);
  }

  const std::string text = replaced(read_file(script), folder_.string(), "/scratch/me");
  const std::string golden =
      fmt::format("{}/batch/golden/{}-{}.sh", PLEAT_TESTS_DIR, system, machine);
  if (std::getenv("PLEAT_REGENERATE") != nullptr) std::ofstream(golden) << text;
  EXPECT_EQ(text, read_file(golden)) << "tests/batch/regenerate makes it anew";
}

INSTANTIATE_TEST_SUITE_P(All, BatchGolden,
                         ::testing::Combine(::testing::Values("slurm", "pbs", "flux"),
                                            ::testing::Values("frontier", "perlmutter",
                                                              "aurora", "h100",
                                                              "laptop")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param);
                         });

TEST_F(BatchTest, EveryMachineOfTheFolderHasGoldenTexts) {
  for (const auto& file : std::filesystem::directory_iterator(
           std::string(PLEAT_SOURCE_DIR) + "/inputs/machines")) {
    for (const char* system : {"slurm", "pbs", "flux"}) {
      EXPECT_TRUE(
          std::filesystem::exists(fmt::format("{}/batch/golden/{}-{}.sh", PLEAT_TESTS_DIR,
                                              system, file.path().stem().string())))
          << file.path();
    }
  }
}

// --- Where the script goes, what it takes from deck and machine ---

TEST_F(BatchTest, TheScriptGoesToStdoutAndTheMachineNamesTheSystem) {
  const CommandResult made = batch("--machine aurora --account a --nodes 2");
  EXPECT_EQ(made.exit_code, 0);
  EXPECT_THAT(made.output, testing::StartsWith("#!/bin/bash"));
  EXPECT_THAT(made.output, HasSubstr("#PBS -l select=2\n"));
}

TEST_F(BatchTest, WithoutAMachineItIsAGeneralOneWhichIsSaid) {
  const CommandResult gpus =
      batch("--system slurm --nodes 1 --gpus-per-node 8 --output gpus.sh");
  EXPECT_EQ(gpus.output,
            "the script is for a cluster of eight H100 a node (--machine h100): no "
            "--machine was given\nsbatch gpus.sh\n");
  EXPECT_EQ(gpus.exit_code, 0);
  batch("--machine h100 --output named.sh");
  EXPECT_EQ(replaced(read_file(path("gpus.sh")), "gpus.sh", "named.sh"),
            read_file(path("named.sh")));
  const CommandResult cores = batch("--system pbs --ranks-per-node 8");
  EXPECT_EQ(cores.exit_code, 0);
  EXPECT_THAT(cores.output, HasSubstr("(--machine laptop)"));
  EXPECT_THAT(cores.output, HasSubstr("# 1 node of this computer, 8 ranks on each"));
}

TEST_F(BatchTest, AFileIsNotOverwrittenUnasked) {
  const std::string arguments = "--machine laptop --ranks-per-node 4 --output job.sh";
  const CommandResult made = batch(arguments);
  EXPECT_EQ(made.output, "sbatch job.sh\n");
  EXPECT_EQ(access(path("job.sh").c_str(), X_OK), 0);
  EXPECT_THAT(batch(arguments).output, HasSubstr("PL0920"));
  EXPECT_EQ(batch(arguments + " --force").exit_code, 0);
}

TEST_F(BatchTest, AWallLimitOfTheDeckIsLeftAsItIs) {
  const std::string arguments = "--machine laptop --ranks-per-node 4 ";
  // 4 h less the largest margin.
  EXPECT_THAT(batch(arguments).output, HasSubstr("run.wall_limit=$((14280 - SECONDS))"));
  const std::string own = batch(arguments + "run.wall_limit=30m").output;
  EXPECT_THAT(own, HasSubstr("  run.wall_limit=30m\n"));
  EXPECT_THAT(own, Not(HasSubstr("SECONDS")));
}

TEST_F(BatchTest, PathsWithBlanksAndQuotesAreOneWord) {
  std::filesystem::rename(path("deck.toml"), path("it's a deck.toml"));
  const CommandResult made = pleat(
      "batch \"it's a deck.toml\" --time 1h --machine laptop --ranks-per-node 4 "
      "--program '/opt/my tools/pleat' 'run.output=runs/$HOME'");
  EXPECT_EQ(made.exit_code, 0) << made.output;
  EXPECT_THAT(made.output, HasSubstr("deck='it'\\''s a deck.toml'\n"));
  EXPECT_THAT(made.output, HasSubstr("program='/opt/my tools/pleat'\n"));
  EXPECT_THAT(made.output, HasSubstr("run='runs/$HOME' "));
}

// --- What fits into a node ---

TEST_F(BatchTest, GroupsThatLeaveTheNodeAreNamedWithTheNearestThatDoNot) {
  const CommandResult made = batch(
      "--machine h100 --nodes 2 parallel.expert=16 parallel.context=2 "
      "parallel.tensor=8");
  EXPECT_EQ(made.exit_code, 0) << made.output;
  EXPECT_THAT(made.output,
              HasSubstr("WARNING: expert x expert_tensor = 16 does not fit"));
  EXPECT_THAT(made.output, HasSubstr("nearest that fits: parallel.expert=8 "
                                     "parallel.expert_tensor=1"));
  EXPECT_THAT(made.output, HasSubstr("# WARNING: context x tensor = 16 does not fit"));
  EXPECT_THAT(made.output, HasSubstr("parallel.context=1 parallel.tensor=8"));
}

TEST_F(BatchTest, AProductThatDoesNotDivideTheNodeStraddlesIt) {
  // Of 3 x 12 ranks, every other group of 8 lies on two nodes.
  const CommandResult made =
      batch("--machine aurora --account a --nodes 2 parallel.expert=8");
  EXPECT_THAT(made.output, HasSubstr("expert x expert_tensor = 8 does not fit"));
  EXPECT_THAT(made.output, HasSubstr("parallel.expert=12 parallel.expert_tensor=1"));
  const CommandResult fits =
      batch("--machine aurora --account a --nodes 2 parallel.expert=12");
  EXPECT_THAT(fits.output, HasSubstr("# expert x expert_tensor = 12: inside a node"));
  EXPECT_THAT(fits.output, Not(HasSubstr("WARNING")));
}

// --- What is refused ---

class BatchRefusal : public BatchTest {
 protected:
  void expect_refused(const std::string& arguments, const std::string& text) const {
    const CommandResult made = batch(arguments);
    EXPECT_EQ(made.exit_code, 2) << arguments << "\n" << made.output;
    EXPECT_THAT(made.output, HasSubstr(text)) << arguments;
    EXPECT_THAT(made.output, Not(HasSubstr("#!/bin/bash"))) << arguments;
  }
};

TEST_F(BatchRefusal, IllegalMappingsGetTheMessageOfCheck) {
  const CommandResult checked = pleat("check deck.toml --ranks 6");
  EXPECT_EQ(checked.exit_code, 2);
  EXPECT_EQ(batch("--machine laptop --ranks-per-node 6").output, checked.output);
}

TEST_F(BatchRefusal, WrongOptions) {
  expect_refused("--machine laptop", "--ranks-per-node is needed");
  expect_refused("--machine laptop --gpus-per-node 2", "has no GPUs");
  expect_refused("--machine h100 --gpus-per-node 9", "has 8");
  expect_refused("--machine h100 --ranks-per-node 8", "one rank on each GPU");
  expect_refused("--machine frontier", "--account is needed on Frontier");
  expect_refused("--machine h100 --queue 'a b'", "expected one word");
  expect_refused("--machine h100 --nodes 0", "PL0901");
  expect_refused("--machine h100 --system lsf", "PL0901");
  EXPECT_THAT(pleat("batch deck.toml --machine h100 --time 240").output,
              HasSubstr("a number alone has no unit"));
  EXPECT_THAT(pleat("batch deck.toml --machine h100 --time soon").output,
              HasSubstr("PL0943"));
  EXPECT_THAT(pleat("batch deck.toml --machine h100 --time 5s").output,
              HasSubstr("one minute"));
}

TEST_F(BatchRefusal, ARunThatWouldBeginAnewInEachJob) {
  expect_refused("--machine h100 checkpoint.resume=none", "PL0944");
}

TEST_F(BatchRefusal, ButNotOneThatBeginsInAnotherFolder) {
  const CommandResult made =
      batch("--machine h100 checkpoint.resume=other/checkpoints/a.h5");
  EXPECT_EQ(made.exit_code, 0) << made.output;
}

TEST_F(BatchRefusal, AWallLimitThatTheBatchSystemDoesNotTell) {
  for (const char* system : {"pbs", "flux"}) {
    expect_refused(fmt::format("--machine h100 --system {} run.wall_limit=auto", system),
                   "PL0945: run.wall_limit = \"auto\" finds no limit");
  }
}

TEST_F(BatchRefusal, AWallLimitThatNoJobReaches) {
  for (const char* limit : {"5h", "4h", "14400"}) {
    expect_refused(
        std::string("--machine aurora --account a --nodes 2 run.wall_limit=") + limit,
        fmt::format("PL0945: run.wall_limit = \"{}\" is not less than --time 4h", limit));
  }
  for (const char* limit : {"3h59m", "auto", ""}) {
    const CommandResult made =
        batch(fmt::format("--machine h100 run.wall_limit='\"{}\"'", limit));
    EXPECT_EQ(made.exit_code, 0) << made.output;
  }
}

TEST_F(BatchRefusal, MachinesThatAreNotThereOrWrong) {
  expect_refused("--machine fronteir", "did you mean 'frontier'?");
  expect_refused("--machine mine.toml", "there is no machine 'mine.toml'");
  const auto expect_wrong = [&](const std::string& lines, const std::string& text) {
    write("mine.toml", "[machine]\ntitle = \"mine\"\n" + lines);
    expect_refused("--machine mine.toml --ranks-per-node 4", text);
  };
  expect_wrong("crores = 4\n",
               "mine.toml:3: unknown key 'machine.crores'\nHINT: did you "
               "mean 'machine.cores'?");
  expect_wrong("cores = -1\n", "mine.toml:3: machine.cores: found -1");
  expect_wrong("system = \"lsf\"\n", "mine.toml:3: machine.system");
  expect_wrong("[environment]\nvariables = [\"A B=1\"]\n", "mine.toml:4: environment");
  expect_wrong("[launch]\ndevice_variable = \"A-B\"\n", "mine.toml:4: launch");
  expect_wrong("gpus = 2\n[launch]\ndevices = [1]\n", "mine.toml:5: launch.devices");
  expect_wrong("[job]\nslurm = [\"--gpus={gpu}\"]\n", "unknown placeholder {gpu}");
  write("mine.toml", "[machine]\n");
  expect_refused("--machine mine.toml", "machine.title: missing");
}

}  // namespace
}  // namespace pleat::test
