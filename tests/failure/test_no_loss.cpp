// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Batches and held-out samples without a token that carries loss: nobody takes their 0
/// for a loss.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "failure/failure_deck.hpp"
#include "failure/messages.hpp"
#include "pleat/io/hdf5.hpp"
#include "pleat/io/sampling.hpp"
#include "support/program.hpp"

namespace pleat::test {
namespace {

constexpr std::int64_t kSamples = 8;
constexpr std::int64_t kLength = 16;
constexpr const char* kMaskedData =
    "train deck.toml data.format=hdf5 data.path=masked.h5 data.dataset=tokens "
    "data.loss_mask=mask data.shuffle=false ";

void write_datasets(io::Hdf5Group root, const std::vector<std::int32_t>& tokens,
                    const std::vector<std::int32_t>& mask) {
  root.write_dataset<std::int32_t>("tokens", {kSamples, kLength + 1}, tokens);
  root.write_dataset<std::int32_t>("mask", {kSamples, kLength}, mask);
}

class NoLoss : public ProgramTest {
 protected:
  /// \param silent  samples without loss
  void write_masked(const std::vector<std::int64_t>& silent) {
    write("deck.toml", kSoundDeck);
    std::vector<std::int32_t> mask(kSamples * kLength, 1);
    for (const std::int64_t sample : silent) {
      std::fill_n(mask.begin() + sample * kLength, kLength, 0);
    }
    const std::vector<std::int32_t> tokens(kSamples * (kLength + 1), 7);
    io::Hdf5File file = io::Hdf5File::create(path("masked.h5"), MPI_COMM_SELF);
    write_datasets(file.root(), tokens, mask);
    file.close();
  }
};

TEST_F(NoLoss, AStepWithoutLossIsToldOnce) {
  write_masked({0, 1, 4, 5});  // steps 1 and 3 of two samples each
  const CommandResult run = pleat(kMaskedData);
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(count(run.output, "carries loss"), 1) << run.output;
  EXPECT_NE(run.output.find("step 1: no token"), std::string::npos) << run.output;
  const auto losses = read_metrics(path("out/metrics.csv")).at("loss_ce");
  ASSERT_EQ(losses.size(), 3U);
  EXPECT_EQ(losses[0], 0.0);
  EXPECT_GT(losses[1], 0.0);
  EXPECT_EQ(losses[2], 0.0);
}

TEST_F(NoLoss, NothingIsToldOfDataWithLoss) {
  write_masked({0, 3});  // half of a batch
  const CommandResult run = pleat(kMaskedData);
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_EQ(count(run.output, "carries loss"), 0) << run.output;
}

TEST_F(NoLoss, ValidationWithoutLossHasNoNumber) {
  constexpr double kShare = 0.25;
  const io::HeldOutSplit split(kSamples, kShare, 1);
  write_masked({split.held_out_sample(0), split.held_out_sample(1)});
  const CommandResult run = pleat(std::string(kMaskedData) +
                                  "run.seed=1 data.split=0.25 validation.every=1");
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_NE(run.output.find("no validation loss"), std::string::npos) << run.output;
  EXPECT_EQ(count(run.output, "validation loss 0.0000"), 0) << run.output;
  const auto losses = read_metrics(path("out/metrics.csv")).at("validation_loss");
  EXPECT_FALSE(losses.empty());
  for (const double loss : losses) EXPECT_TRUE(std::isnan(loss)) << loss;
}

TEST_F(NoLoss, DataWithoutAnyAreRefused) {
  write_masked({0, 1, 2, 3, 4, 5, 6, 7});
  const CommandResult run = pleat(kMaskedData);
  EXPECT_EQ(run.exit_code, 2) << run.output;
  EXPECT_NE(run.output.find("PL0502"), std::string::npos) << run.output;
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

}  // namespace
}  // namespace pleat::test
