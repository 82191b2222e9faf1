// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief `pleat check` as a user calls it.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/command.hpp"
#include "support/mpiexec.hpp"

namespace {

namespace fs = std::filesystem;
using pleat::test::CommandResult;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// \param launcher  "mpiexec -n N ..." or nothing
CommandResult pleat(const std::string& arguments, const std::string& launcher = "") {
  return pleat::test::run_command(launcher + " " + PLEAT_PROGRAM + " " + arguments);
}

constexpr const char* kDeck = R"(
[run]
name = "check"
steps = 2
[model]
layers = 3
hidden = 128
heads = 4
kv_heads = 2
vocab = 4096
[moe]
experts = 16
top_k = 4
ffn = 256
[batch]
sequence = 256
micro = 4
[data]
format = "synthetic"
[checkpoint]
resume = "none"
)";

class Check : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("pleat_check_" + std::to_string(getpid()));
    fs::create_directories(folder_);
    deck_ = (folder_ / "deck.toml").string();
    std::ofstream(deck_) << kDeck;
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
  std::string deck_;
};

TEST_F(Check, ReportsShapesCountsFlopsMemoryAndData) {
  const CommandResult outcome = pleat("check " + deck_);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(
      outcome.output,
      AllOf(HasSubstr("[256, 128]"), HasSubstr("[512, 128]"), HasSubstr("causal rule"),
            HasSubstr("memory of the fullest"), HasSubstr("2 steps of 1024 tokens"),
            HasSubstr("epochs"), HasSubstr("no problems found")));
}

TEST_F(Check, PresetsNeedNoDeck) {
  const CommandResult outcome = pleat("check --preset mixtral-8x7b");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("46.70 B total (46,702,792,704)"),
                                  HasSubstr("12.88 B active")));
}

TEST_F(Check, OverridesApply) {
  const CommandResult outcome = pleat("check " + deck_ + " moe.top_k=17");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("PL0608"), HasSubstr("moe.experts = 16")));
}

TEST_F(Check, DataIsOpenedUnlessToldOtherwise) {
  const std::string missing =
      "check " + deck_ + " data.format=text data.path=" + (folder_ / "no.txt").string();
  EXPECT_EQ(pleat(missing).exit_code, 2);
  const CommandResult unopened = pleat(missing + " --no-data");
  EXPECT_EQ(unopened.exit_code, 0) << unopened.output;
}

TEST_F(Check, MappingHasToFillTheRanks) {
  EXPECT_EQ(pleat("check " + deck_ + " --ranks 0").exit_code, 2);
  const CommandResult three = pleat("check " + deck_ + " --ranks 3 parallel.tensor=2");
  EXPECT_EQ(three.exit_code, 2);
  EXPECT_THAT(three.output, HasSubstr("PL0802"));
  // Two data ranks, but a step of one micro-batch: one of them computes padding.
  const CommandResult two = pleat("check " + deck_ + " --ranks 2");
  EXPECT_EQ(two.exit_code, 0) << two.output;
  EXPECT_THAT(two.output,
              HasSubstr("1 micro-batches do not divide evenly over 2 data ranks"));
}

TEST_F(Check, WithoutARankCountTheDegreesSayHowMany) {
  const std::string deck = "check " + deck_ + " batch.global=12 parallel.tensor=2";
  const CommandResult alone = pleat(deck + " parallel.context=2 parallel.expert=8");
  EXPECT_EQ(alone.exit_code, 0) << alone.output;
  EXPECT_THAT(alone.output, AllOf(HasSubstr("mapping: 8 ranks\n"), HasSubstr("data 2 "),
                                HasSubstr("the fewest ranks that the degrees")));
  const CommandResult asked = pleat(deck + " --ranks 6");
  EXPECT_THAT(asked.output, AllOf(HasSubstr("mapping: 6 ranks\n"), HasSubstr("data 3 "),
                                Not(HasSubstr("fewest"))));
  EXPECT_THAT(pleat("check " + deck_).output, Not(HasSubstr("fewest")));
}

TEST_F(Check, UnderMpirunTheRanksAreThoseOfTheJob) {
  const std::string deck = "check " + deck_ + " batch.global=12 parallel.tensor=2";
  const CommandResult four = pleat(deck, pleat::test::mpiexec(4));
  EXPECT_EQ(four.exit_code, 0) << four.output;
  EXPECT_THAT(four.output, AllOf(HasSubstr("mapping: 4 ranks\n"), HasSubstr("data 2 "),
                               HasSubstr("the ranks of this job")));
  EXPECT_THAT(pleat(deck + " --ranks 8", pleat::test::mpiexec(4)).output,
              HasSubstr("mapping: 8 ranks\n"));
  EXPECT_EQ(pleat(deck, pleat::test::mpiexec(3)).exit_code, 2);
}

TEST_F(Check, EachStageHasItsMemory) {
  const CommandResult outcome =
      pleat("check " + deck_ + " --ranks 6 parallel.pipeline=3 parallel.expert=2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("stage 2   layers 2; head"),
                    HasSubstr("stage    parameters"), HasSubstr("\n  2   ")));
}

TEST_F(Check, IllegalMappingsNameTheNearestLegalOnes) {
  const CommandResult outcome = pleat("check " + deck_ + " --ranks 4 parallel.tensor=3");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("PL0610"), HasSubstr("parallel.tensor = 2, or "
                                                   "parallel.tensor = 4.")));
  EXPECT_THAT(pleat("check " + deck_ + " --ranks 3 parallel.tensor=3").output,
              HasSubstr("the nearest legal choice is parallel.tensor = 1."));
}

TEST_F(Check, NeedsExactlyOneOfDeckAndPreset) {
  EXPECT_EQ(pleat("check").exit_code, 2);
  EXPECT_EQ(pleat("check " + deck_ + " --preset mixtral-8x7b").exit_code, 2);
  const CommandResult misspelt = pleat("check --preset mixtral-8x7");
  EXPECT_EQ(misspelt.exit_code, 2);
  EXPECT_THAT(misspelt.output, HasSubstr("did you mean 'mixtral-8x7b'?"));
}

TEST_F(Check, LeavesNothingBehind) {
  const std::string output = (folder_ / "out").string();
  EXPECT_EQ(pleat("check " + deck_ + " run.output=" + output).exit_code, 0);
  EXPECT_FALSE(fs::exists(output));
}

/// The number of MiB that follows the text.
double mebibytes_after(const std::string& text, const std::string& what) {
  const std::size_t at = text.find(what);
  if (at == std::string::npos) return 0.0;
  return std::stod(text.substr(at + what.size()));
}

/// Field `peak_memory` of the last row, in MiB.
double measured_peak(const fs::path& metrics) {
  std::ifstream file(metrics);
  std::string line;
  std::string last;
  while (std::getline(file, line)) last = line;
  std::size_t begin = 0;
  for (int field = 0; field < 12 && begin != std::string::npos; ++field) {
    begin = last.find(',', begin) + 1;
  }
  return std::stod(last.substr(begin)) / (1024.0 * 1024.0);
}

/// The planned over the measured memory of the fullest rank of a short run.
double planned_to_measured(const std::string& arguments, const fs::path& output,
                           int ranks) {
  const std::string all = arguments + " checkpoint.every=0 run.output=" + output.string();
  const CommandResult trained =
      pleat("train " + all, ranks > 1 ? pleat::test::mpiexec(ranks) : std::string());
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  if (trained.exit_code != 0) return 0.0;
  const std::string checked =
      pleat("check " + all + " --ranks " + std::to_string(ranks)).output;
  const double planned = mebibytes_after(checked, "memory of the fullest rank: ");
  const double measured = measured_peak(output / "metrics.csv");
  // Elsewhere the program's own size would hide what is wrong.
  EXPECT_GT(measured, 120.0) << arguments;
  return planned / measured;
}

TEST_F(Check, PlannedMemoryIsWhatARunTakes) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer's own memory would be measured";
#endif
  const std::string wide = " model.hidden=256 moe.ffn=512 batch.global=16";
  const std::pair<int, std::string> runs[] = {
      {1, " precision.recompute=none"},
      {1, " precision.recompute=selective"},
      {1, " precision.recompute=full"},
      {1, " precision.compute=fp64"},
      {2, wide},
      {2, wide + " model.vocab=50000"},
      {2, wide + " parallel.sharding=parameters"},
      {2, wide + " parallel.tensor=2"},
      {2, wide + " parallel.context=2"},
      {2, wide + " parallel.expert=2"},
      {2, wide + " parallel.expert_tensor=2"},
      {2, wide + " parallel.pipeline=2"},
      {4, wide + " parallel.tensor=2 parallel.expert=4"},
      {4, wide + " parallel.sharding=parameters parallel.expert=2"},
      // With every expert filled up, products of the library have few sizes
      // (docs/memory.md).
      {2, wide + " precision.compute=bf16 moe.drop.capacity_factor=1 moe.drop.pad=true"}};
  int number = 0;
  for (const auto& [ranks, overrides] : runs) {
    const double ratio = planned_to_measured(
        deck_ + overrides, folder_ / ("run" + std::to_string(number++)), ranks);
    EXPECT_NEAR(ratio, 1.0, 0.10) << ranks << " ranks," << overrides;
  }
}

}  // namespace
