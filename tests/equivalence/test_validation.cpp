// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The validation loss does not depend on the mapping, and validating does not
/// change the steps that follow. On four ranks, against one.

#include <vector>

#include <gtest/gtest.h>

#include "fault_case.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/grid_choice.hpp"
#include "support/world.hpp"

namespace pleat::test {
namespace {

constexpr std::int64_t kSteps = 2;

struct Losses {
  std::vector<double> training;
  std::vector<double> validation;  ///< before the steps, and after each
};

/// \param validate  whether to look at the held-out samples at all
Losses losses_of(const train::RunConfig& config, const comm::Grid& grid, bool validate) {
  train::Engine<double> engine(config, grid);
  engine.initialise();
  const RaggedTokens data(config.model.vocab, config.run.seed);
  Losses losses;
  const auto look = [&] {
    if (!validate) return;
    losses.validation.push_back(
        engine.validate(data, data.validation_samples()).value_or(0.0));
  };
  look();
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    const std::int64_t first = (step - 1) * config.batch.global;
    losses.training.push_back(engine.train_step(step, 1e-3, data, first).losses.total());
    look();
  }
  return losses;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& wanted,
                 const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i] / wanted[i], 1.0, 1e-10) << what << ", number " << i;
  }
}

void expect_losses_of_one_rank(const train::RunConfig& config) {
  train::RunConfig alone = config;
  alone.parallel = {};
  const comm::Grid one;
  const Losses wanted = losses_of(alone, one, true);
  const comm::Grid grid(world(), train::grid_shape_of(config, 4));
  const Losses found = losses_of(config, grid, true);
  const std::string mapping = mapping_text(config, 4);
  expect_near(found.validation, wanted.validation, "validation, " + mapping);
  expect_near(found.training, wanted.training, mapping);
  EXPECT_NE(wanted.validation.front(), wanted.validation.back());
  EXPECT_EQ(losses_of(config, grid, false).training, found.training) << mapping;
}

// Seven samples: neither the micro-batches nor the data ranks share them out evenly.
TEST(Validation, IsThatOfOneRank) {
  for (const train::RunConfig& config : {small_mixtral(), small_qwen2_moe()}) {
    expect_losses_of_one_rank(on(config, {.expert = 4}));
    expect_losses_of_one_rank(
        on(config, {.context = 2, .tensor = 2, .expert_tensor = 2}));
    expect_losses_of_one_rank(on(config, {.pipeline = 4}));
  }
}

TEST(Validation, IsThatOfOneRankInChunksAndShards) {
  train::RunConfig config =
      on(small_qwen2_moe(), {.pipeline = 2, .context = 2, .expert = 2});
  config.parallel.schedule = plan::PipelineSchedule::kInterleaved;
  config.parallel.chunks = 2;
  config.precision.recompute = plan::Recompute::kFull;
  expect_losses_of_one_rank(config);
  config.parallel.sharding = plan::Sharding::kParameters;
  expect_losses_of_one_rank(config);
}

}  // namespace
}  // namespace pleat::test
