// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief From a deck and a rank count to grids, stages and what they hold.
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/base/error.hpp"
#include "pleat/train/grid_choice.hpp"

namespace pleat::train {
namespace {

using comm::Axis;
using testing::ElementsAre;
using testing::HasSubstr;

RunConfig run_config() {
  RunConfig config;
  config.model.layers = 8;
  config.model.hidden = 64;
  config.model.heads = 4;
  config.model.kv_heads = 2;
  config.model.head_dim = 16;
  config.model.vocab = 64;
  config.model.moe.experts = 8;
  config.model.moe.ffn = 256;
  config.model.moe_layer.assign(8, true);
  config.batch.sequence = 64;
  config.batch.global = 8;
  return config;
}

TEST(GridChoice, BothGridsAndTheRestOfTheMapping) {
  RunConfig config = run_config();
  config.parallel.pipeline = 2;
  config.parallel.tensor = 2;
  config.parallel.expert = 4;
  config.parallel.layout = {5, 3};
  const comm::GridShape grid = grid_shape_of(config, 16);
  EXPECT_EQ(grid.degree(Axis::kData), 4);
  EXPECT_EQ(grid.degree(Axis::kExpertData), 2);
  const plan::Mapping mapping = mapping_of(config, grid);
  EXPECT_EQ(mapping.data, 4);
  EXPECT_EQ(mapping.expert_data, 2);
  EXPECT_EQ(mapping.tensor, 2);
  EXPECT_THAT(mapping.layout, ElementsAre(5, 3));
}

TEST(GridChoice, RefusesWhatDoesNotFit) {
  RunConfig config = run_config();
  config.parallel.tensor = 2;
  EXPECT_THROW(grid_shape_of(config, 5), InputError);
  config.parallel.tensor = 8;
  try {
    grid_shape_of(config, 8);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.heads = 4"));
  }
}

TEST(GridChoice, EveryLayerIsOnOneStage) {
  RunConfig config = run_config();
  for (const std::int64_t stages : {1, 2, 3, 5, 8}) {
    config.parallel.pipeline = stages;
    const comm::GridShape grid = grid_shape_of(config, 2 * stages);
    std::vector<std::int64_t> seen(8, 0);
    for (std::int64_t stage = 0; stage < stages; ++stage) {
      for (const model::Slice& layers : placement_of(config, grid, 2 * stage).chunks) {
        for (std::int64_t layer = layers.first; layer < layers.end(); ++layer)
          ++seen[static_cast<std::size_t>(layer)];
      }
    }
    EXPECT_THAT(seen, testing::Each(1)) << stages;
  }
}

TEST(GridChoice, MicroBatchesOfTheFullestRank) {
  RunConfig config = run_config();
  EXPECT_EQ(micro_batches_per_rank(config, 1), 8);
  EXPECT_EQ(micro_batches_per_rank(config, 3), 3);
  EXPECT_EQ(micro_batches_per_rank(config, 16), 1);
}

TEST(GridChoice, StagesHoldWhatTheScheduleSays) {
  RunConfig config = run_config();
  config.model.moe_layer[0] = false;
  config.model.ffn = 128;
  config.parallel.pipeline = 4;
  config.parallel.layout = {2, 2, 2, 2};
  const comm::GridShape grid = grid_shape_of(config, 4);
  for (std::int64_t stage = 0; stage < 4; ++stage) {
    const plan::StageLoad load = stage_load(config, grid, stage);
    ASSERT_EQ(load.chunks.size(), 1u);
    EXPECT_EQ(load.chunks[0].micro_batches, 4 - stage);
    EXPECT_EQ(load.chunks[0].dense_layers, stage == 0 ? 1 : 0);
    EXPECT_EQ(load.chunks[0].moe_layers, stage == 0 ? 1 : 2);
    EXPECT_EQ(load.embedding, stage == 0);
    EXPECT_EQ(load.head, stage == 3);
  }
}

TEST(GridChoice, InterleavedStagesHoldTheFirstChunkLongest) {
  RunConfig config = run_config();
  config.parallel.pipeline = 2;
  config.parallel.schedule = plan::PipelineSchedule::kInterleaved;
  config.parallel.chunks = 2;
  const comm::GridShape grid = grid_shape_of(config, 2);
  // Stage 0 has gone forward through four passes, and one more, when the first gradient
  // comes: micro-batches 0 and 1 through both chunks, micro-batch 2 through the first.
  const plan::StageLoad load = stage_load(config, grid, 0);
  EXPECT_EQ(load.chunks[0].micro_batches, 3);
  EXPECT_EQ(load.chunks[1].micro_batches, 2);
}

}  // namespace
}  // namespace pleat::train
