// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The router on four ranks against one: losses, capacity, balancing by a bias,
/// and what is counted of them.

#include <algorithm>
#include <cstdint>

#include <gtest/gtest.h>

#include "fault_case.hpp"
#include "pleat/train/engine.hpp"
#include "pleat/train/grid_choice.hpp"
#include "support/world.hpp"

namespace pleat::test {
namespace {

// Four ranks.

TEST(RouterFaults, PaddingWithRouterLossesUnderTensorAndContext) {
  for (const auto scope :
       {plan::AuxiliaryScope::kMicroBatch, plan::AuxiliaryScope::kSequence}) {
    train::RunConfig config = small_qwen2_moe();
    config.model.moe.auxiliary_scope = scope;
    config.model.moe.auxiliary_coefficient = 1.0;  // the losses rule
    config.model.moe.z_coefficient = 0.1;
    // So do their gradients in the norm that is clipped: it brings those of key biases
    // near AdamW's usual eps, by which it would divide their rounding.
    config.optimizer.eps = 1.0e-6;
    expect_same(on(config, {.context = 2, .tensor = 2}));
    expect_same(on(config, {.tensor = 4, .expert = 4}));
  }
}

TEST(RouterFaults, BalancingOverTheGlobalBatch) {
  train::RunConfig config = small_mixtral();
  config.model.moe.auxiliary_scope = plan::AuxiliaryScope::kGlobalBatch;
  config.model.moe.auxiliary_coefficient = 1.0;
  config.batch.micro = 2;
  expect_same(on(config, {.expert = 4}));
  config.batch.micro = 4;
  expect_same(on(config, {.tensor = 2, .expert = 2}));
  expect_same(on(config, {.pipeline = 2, .expert_tensor = 2}));
}

TEST(RouterFaults, CapacityOfWholeSequences) {
  for (const auto policy : {plan::DropPolicy::kProbs, plan::DropPolicy::kPosition}) {
    for (const bool pad : {false, true}) {
      train::RunConfig config = small_mixtral();
      config.model.moe.drop = {1.0, plan::DropScope::kSequence, policy, pad};
      expect_same(on(config, {.context = 2, .tensor = 2, .expert = 2}));
      expect_same(on(config, {.context = 2, .expert = 2, .expert_tensor = 2}));
      expect_same(on(config, {.tensor = 4, .expert = 4}));
    }
  }
}

// On ranks that hold whole sequences both scopes are the same thing.
TEST(RouterFaults, CapacityOfSubSequencesWhereNoSequenceIsCut) {
  for (const auto policy : {plan::DropPolicy::kProbs, plan::DropPolicy::kPosition}) {
    for (const bool pad : {false, true}) {
      train::RunConfig config = small_qwen2_moe();
      config.model.moe.drop = {0.8, plan::DropScope::kSubSequence, policy, pad};
      expect_same(on(config, {.expert = 4}));
      expect_same(on(config, {.expert_tensor = 4}));
      expect_same(on(config, {.pipeline = 2, .expert_tensor = 2}));
      config.precision.recompute = plan::Recompute::kFull;
      expect_same(on(config, {.expert = 2, .expert_tensor = 2}));
    }
  }
}

/// Sequences whose first tokens are real: 32, 20, 11 of 32 and so on.
class Shortened final : public io::TokenData {
 public:
  static constexpr std::int64_t kLengths[] = {32, 20, 11, 1};
  explicit Shortened(std::int64_t vocab) : all_(vocab, 5) {}
  std::int64_t training_samples() const override { return all_.training_samples(); }
  std::int64_t validation_samples() const override { return 1; }
  void training_batch(std::int64_t first, const io::HostBatch& batch) const override {
    all_.training_batch(first, batch);
    for (std::size_t row = 0; row < batch.tokens_BS.extent(0); ++row) {
      const std::int64_t length = kLengths[(static_cast<std::size_t>(first) + row) % 4];
      for (std::size_t s = 0; s < batch.tokens_BS.extent(1); ++s) {
        batch.real_BS(row, s) = static_cast<std::int64_t>(s) < length ? 1 : 0;
        batch.loss_mask_BS(row, s) = batch.real_BS(row, s);
      }
    }
  }
  void validation_batch(std::int64_t first, const io::HostBatch& batch) const override {
    training_batch(first, batch);
  }
  std::string description() const override { return "shortened"; }

 private:
  RaggedTokens all_;
};

/// The losses of one step on the mapping.
train::StepLosses losses_of(const train::RunConfig& config) {
  const comm::Grid grid(world(), train::grid_shape_of(config, 4));
  train::Engine<double> engine(config, grid);
  engine.initialise();
  return engine.train_step(1, 1e-3, Shortened(config.model.vocab), 0).losses;
}

// Where every token chooses every expert, all is known: of each sequence an expert keeps
// its capacity, ceil(32 8 / 8 0.25) = 8, and every expert has the same load.
TEST(RouterFaults, DroppedPairsAndLoadsAreCountedOnce) {
  train::RunConfig config = small_mixtral();
  config.model.moe.top_k = config.model.moe.experts;
  std::int64_t expected = 0;
  for (std::int64_t i = 0; i < config.batch.global; ++i) {
    const std::int64_t over = Shortened::kLengths[static_cast<std::size_t>(i) % 4] - 8;
    expected +=
        config.model.layers * config.model.moe.experts * std::max<std::int64_t>(0, over);
  }
  for (const auto recompute :
       {plan::Recompute::kNone, plan::Recompute::kSelective, plan::Recompute::kFull}) {
    config.precision.recompute = recompute;
    for (const bool pad : {false, true}) {
      config.model.moe.drop = {0.25, plan::DropScope::kSequence, plan::DropPolicy::kProbs,
                               pad};
      for (const comm::Degrees& degrees :
           {comm::Degrees{.expert = 4}, comm::Degrees{.context = 2, .tensor = 2},
            comm::Degrees{.tensor = 4, .expert = 2, .expert_tensor = 2},
            comm::Degrees{.pipeline = 2, .context = 2, .expert_tensor = 2}}) {
        const train::RunConfig mapped = on(config, degrees);
        const train::StepLosses losses = losses_of(mapped);
        EXPECT_EQ(losses.dropped, expected) << mapping_text(mapped, 4);
        EXPECT_DOUBLE_EQ(losses.expert_imbalance, 1.0) << mapping_text(mapped, 4);
      }
    }
  }
}

train::RunConfig balanced_by_bias(plan::RouterScore score) {
  train::RunConfig config = small_mixtral();
  config.model.moe.score = score;
  config.model.moe.groups = 4;
  config.model.moe.top_groups = 2;
  config.model.moe.routed_scale = 2.5;
  config.model.moe.bias_update_rate = 0.01;
  return config;
}

TEST(RouterFaults, BiasBalancing) {
  for (const auto score :
       {plan::RouterScore::kSigmoid, plan::RouterScore::kSoftmaxBeforeTopK}) {
    train::RunConfig config = balanced_by_bias(score);
    expect_same(on(config, {.tensor = 2, .expert = 4}));
    expect_same(on(config, {.expert = 2, .expert_tensor = 2}));
    config.batch.micro = 1;  // eight micro-batches
    expect_same(on(config, {.pipeline = 2, .expert = 2}));
    config.parallel.sharding = plan::Sharding::kParameters;
    expect_same(on(config, {.context = 2, .expert = 2}));
  }
}

TEST(RouterFaults, BiasBalancingInAnInterleavedPipelineThatRecomputes) {
  train::RunConfig config = balanced_by_bias(plan::RouterScore::kSigmoid);
  config.parallel.schedule = plan::PipelineSchedule::kInterleaved;
  config.parallel.chunks = 2;
  config.precision.recompute = plan::Recompute::kFull;
  expect_same(on(config, {.pipeline = 2, .tensor = 2, .expert_tensor = 2}));
}

}  // namespace
}  // namespace pleat::test
