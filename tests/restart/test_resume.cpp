// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief A run that was interrupted and resumed is bitwise the run that was not.

#include <filesystem>
#include <string>
#include <vector>

#include "pleat/io/checkpoint.hpp"
#include "support/program.hpp"

namespace pleat::test {
namespace {

constexpr const char* kDeck = R"(
[run]
steps = 12
seed = 7
[model]
layers = 2
hidden = 32
heads = 4
kv_heads = 2
vocab = 256
[moe]
experts = 4
ffn = 24
aux_loss.coeff = 0.01
z_loss = 0.001
[batch]
sequence = 16
micro = 2
global = 4
[optimizer]
lr = 5e-3
warmup = 2
[data]
format = "synthetic"
synthetic_samples = 20   # 2.4 epochs: the order crosses epochs
split = 0.2
[validation]
every = 4
[checkpoint]
every = 1
)";

class Resume : public ProgramTest, public ::testing::WithParamInterface<const char*> {
 protected:
  /// Trains into a folder up to the last step or, if given, only up to `last`; the
  /// schedule stays that of the whole run, as after a kill.
  void train(const std::string& output, const std::string& more = "") {
    const CommandResult run = pleat("train deck.toml run.output=" + output +
                                    " precision.compute=" + GetParam() + " " + more);
    ASSERT_EQ(run.exit_code, 0) << run.output;
  }

  /// What a kill after step `step` leaves: everything later is gone.
  void cut_back(const std::string& output, int step) {
    const std::filesystem::path checkpoints = path(output + "/checkpoints");
    for (int later = step + 1; later <= 12; ++later) {
      std::filesystem::remove(checkpoints / io::checkpoint_name(later));
    }
    std::ofstream(checkpoints / "LATEST") << io::checkpoint_name(step) << "\n";
  }

  void expect_same_checkpoints(const std::string& a, const std::string& b) {
    const std::string last = "/checkpoints/" + io::checkpoint_name(12);
    const io::CheckpointReader first(path(a + last));
    const io::CheckpointReader second(path(b + last));
    EXPECT_EQ(first.info().next_sample, second.info().next_sample);
    for (const auto group : {io::TensorGroup::kParameters, io::TensorGroup::kFirstMoment,
                             io::TensorGroup::kSecondMoment}) {
      ASSERT_FALSE(first.names(group).empty());
      for (const std::string& name : first.names(group)) {
        EXPECT_EQ(first.read_raw(group, name), second.read_raw(group, name)) << name;
      }
    }
  }

  void expect_same_metrics(const std::string& a, const std::string& b) {
    const auto first = read_metrics(path(a + "/metrics.csv"));
    const auto second = read_metrics(path(b + "/metrics.csv"));
    for (const char* column :
         {"step", "loss", "loss_ce", "loss_aux", "loss_z", "learning_rate", "grad_norm",
          "tokens", "expert_imbalance"}) {
      ASSERT_EQ(first.at(column).size(), 12u) << column;
      EXPECT_EQ(first.at(column), second.at(column)) << column;
    }
  }
};

TEST_P(Resume, FromEveryStepIsBitwiseTheUninterruptedRun) {
  write("deck.toml", kDeck);
  train("whole");
  for (const int step : {1, 4, 5, 11}) {
    SCOPED_TRACE(step);
    std::filesystem::remove_all(path("cut"));
    std::filesystem::copy(path("whole"), path("cut"),
                          std::filesystem::copy_options::recursive);
    cut_back("cut", step);
    train("cut");
    expect_same_checkpoints("whole", "cut");
    expect_same_metrics("whole", "cut");
  }
}

TEST_P(Resume, ADamagedNewestCheckpointIsNamedAndTheOneBeforeIsUsed) {
  write("deck.toml", kDeck);
  train("whole");
  std::filesystem::copy(path("whole"), path("cut"),
                        std::filesystem::copy_options::recursive);
  cut_back("cut", 9);
  const std::string damaged = path("cut/checkpoints/" + io::checkpoint_name(9));
  std::filesystem::resize_file(damaged, std::filesystem::file_size(damaged) / 2);
  const CommandResult run = pleat(
      std::string("train deck.toml run.output=cut precision.compute=") + GetParam());
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("WARNING"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find(io::checkpoint_name(9)), std::string::npos) << run.output;
  expect_same_checkpoints("whole", "cut");
  expect_same_metrics("whole", "cut");
}

INSTANTIATE_TEST_SUITE_P(Precisions, Resume, ::testing::Values("fp64", "fp32", "bf16"),
                         [](const auto& info) { return std::string(info.param); });

// A run in fp32 goes on in bf16, with its masters as they are, and the other way round.
TEST_F(ProgramTest, AnotherPrecisionGoesOnFromTheCheckpoint) {
  write("deck.toml", kDeck);
  for (const auto& [first, then] : {std::pair("fp32", "bf16"), std::pair("bf16", "fp32")}) {
    const std::string run = std::string("train deck.toml run.output=") + first + "_first ";
    const CommandResult started =
        pleat(run + "precision.compute=" + first + " run.steps=6");
    ASSERT_EQ(started.exit_code, 0) << started.output;
    const CommandResult resumed = pleat(run + "precision.compute=" + then);
    ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
    const auto metrics = read_metrics(path(std::string(first) + "_first/metrics.csv"));
    const auto& losses = metrics.at("loss");
    ASSERT_EQ(losses.size(), 12u);
    EXPECT_NEAR(losses[6], losses[5], 0.2 * losses[5]);
  }
}

// Options that lie outside the tensors' shapes come back from the checkpoint's
// attributes.
class ResumeRouter : public ProgramTest,
                     public ::testing::WithParamInterface<const char*> {};

TEST_P(ResumeRouter, EveryOptionSurvivesACheckpoint) {
  write("deck.toml", kDeck);
  const std::string train =
      std::string(
          "train deck.toml precision.compute=fp64 run.steps=6 checkpoint.every=3 ") +
      GetParam();
  ASSERT_EQ(pleat(train + " run.output=whole").exit_code, 0);
  std::filesystem::create_directories(path("cut/checkpoints"));
  std::filesystem::copy(path("whole/checkpoints/" + io::checkpoint_name(3)),
                        path("cut/checkpoints/" + io::checkpoint_name(3)));
  const CommandResult run = pleat(train + " run.output=cut");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("resuming after step 3"), std::string::npos) << run.output;
  const std::string last = "/checkpoints/" + io::checkpoint_name(6);
  const io::CheckpointReader first(path("whole" + last));
  const io::CheckpointReader second(path("cut" + last));
  for (const std::string& name : first.names(io::TensorGroup::kParameters)) {
    EXPECT_EQ(first.read_raw(io::TensorGroup::kParameters, name),
              second.read_raw(io::TensorGroup::kParameters, name))
        << name;
  }
  const CommandResult inspected = pleat("inspect cut" + last);
  EXPECT_EQ(inspected.exit_code, 0) << inspected.output;
  const CommandResult more =
      pleat("train deck.toml precision.compute=fp64 run.steps=2 run.output=more " +
            std::string(GetParam()) + " model.init=cut" + last);
  EXPECT_EQ(more.exit_code, 0) << more.output;
}

INSTANTIATE_TEST_SUITE_P(
    Options, ResumeRouter,
    ::testing::Values("moe.aux_loss.scope=global_batch",
                      "moe.score=sigmoid moe.bias_update_rate=0.01 moe.routed_scale=1.5",
                      "moe.groups=2 moe.top_groups=1",
                      "moe.drop.capacity_factor=1.0 moe.drop.policy=position",
                      "moe.drop.capacity_factor=1.0 moe.drop.scope=sequence",
                      "moe.drop.capacity_factor=1.0 moe.drop.pad=true"),
    [](const auto& info) { return std::to_string(info.index); });

class ResumeChoices : public ProgramTest {};

TEST_F(ResumeChoices, ACompleteRunIsLeftAlone) {
  write("deck.toml", kDeck);
  ASSERT_EQ(pleat("train deck.toml run.output=out run.steps=3").exit_code, 0);
  const CommandResult again = pleat("train deck.toml run.output=out run.steps=3");
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_NE(again.output.find("the run is complete"), std::string::npos) << again.output;
  EXPECT_EQ(read_metrics(path("out/metrics.csv")).at("step").size(), 3u);
}

TEST_F(ResumeChoices, ANewRunInAnOldFolderKeepsTheOldResults) {
  write("deck.toml", kDeck);
  ASSERT_EQ(pleat("train deck.toml run.output=out run.steps=3").exit_code, 0);
  ASSERT_EQ(pleat("train deck.toml run.output=out run.steps=2 checkpoint.resume=none")
                .exit_code,
            0);
  EXPECT_EQ(read_metrics(path("out/metrics.csv")).at("step").size(), 2u);
  EXPECT_EQ(read_metrics(path("out/metrics.csv.old-1")).at("step").size(), 3u);
  EXPECT_TRUE(
      std::filesystem::exists(path("out/checkpoints.old-1/" + io::checkpoint_name(3))));
}

TEST_F(ResumeChoices, FromANamedCheckpoint) {
  write("deck.toml", kDeck);
  ASSERT_EQ(pleat("train deck.toml run.output=a").exit_code, 0);
  const CommandResult run =
      pleat("train deck.toml run.output=b checkpoint.resume=a/checkpoints/" +
            io::checkpoint_name(4));
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(read_metrics(path("b/metrics.csv")).at("step").front(), 5.0);
  const auto whole = read_metrics(path("a/metrics.csv")).at("loss");
  EXPECT_EQ(read_metrics(path("b/metrics.csv")).at("loss"),
            std::vector<double>(whole.begin() + 4, whole.end()));
}

// The newest checkpoint goes on, and stays as it is in its own folder.
TEST_F(ResumeChoices, FromTheFolderOfARun) {
  write("deck.toml", kDeck);
  ASSERT_EQ(pleat("train deck.toml run.output=a run.steps=4").exit_code, 0);
  const CommandResult run = pleat("train deck.toml run.output=b checkpoint.resume=a");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(read_metrics(path("b/metrics.csv")).at("step").front(), 5.0);
  std::filesystem::create_directory(path("empty"));
  const CommandResult none = pleat("train deck.toml run.output=c checkpoint.resume=empty");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.output.find("empty'"), std::string::npos) << none.output;
}

TEST_F(ResumeChoices, FromWhatIsNotThere) {
  write("deck.toml", kDeck);
  const CommandResult run = pleat("train deck.toml run.output=out checkpoint.resume=nowhere");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_NE(run.output.find("PL0301: checkpoint.resume: 'nowhere' is neither a checkpoint nor"),
            std::string::npos)
      << run.output;
  EXPECT_FALSE(std::filesystem::exists(path("out/metrics.csv")));
}

TEST_F(ResumeChoices, FromChangedDataWithAWarning) {
  write("deck.toml", kDeck);
  const auto train = [&](const std::string& path, int steps) {
    const CommandResult run =
        pleat("train deck.toml data.format=text run.output=out data.path=" + path +
              " run.steps=" + std::to_string(steps));
    EXPECT_EQ(run.exit_code, 0) << run.output;
    return run.output;
  };
  const auto expect_warned = [](const std::string& output, bool warned) {
    EXPECT_EQ(output.find("the content of data.path changed") != std::string::npos, warned)
        << output;
  };
  write("text.txt", std::string(2000, 'a'));
  expect_warned(train("text.txt", 3), false);
  std::filesystem::create_directory(path("moved"));
  std::filesystem::rename(path("text.txt"), path("moved/text.txt"));
  expect_warned(train("moved/text.txt", 4), false);
  write("moved/text.txt", std::string(2000, 'b'));
  expect_warned(train("moved/text.txt", 5), true);
  expect_warned(train("moved/text.txt", 6), false);
  write("moved/text.txt", std::string(1000, 'b'));
  const std::string output = train("moved/text.txt", 7);
  expect_warned(output, true);
  for (const char* samples : {"source 1 was 124 samples", "is 62 samples"})
    EXPECT_NE(output.find(samples), std::string::npos) << output;
}

}  // namespace
}  // namespace pleat::test
