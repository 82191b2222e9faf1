// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Faults that other trainers had, each as the mapping that showed it, against one rank:
/// the same losses, gradients and weights in fp64.

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "fault_case.hpp"

namespace pleat::test {
namespace {

/// Samples of which three tokens are real.
class ThreeTokens final : public io::TokenData {
 public:
  explicit ThreeTokens(std::int64_t vocab) : vocab_(vocab) {}
  std::int64_t training_samples() const override { return 1 << 20; }
  std::int64_t validation_samples() const override { return 1; }
  void training_batch(std::int64_t first, const io::HostBatch& batch) const override {
    for (std::size_t row = 0; row < batch.tokens_BS.extent(0); ++row) {
      for (std::size_t s = 0; s < batch.tokens_BS.extent(1); ++s) {
        const auto place = 17 * (first + static_cast<std::int64_t>(row)) +
                           5 * static_cast<std::int64_t>(s);
        batch.tokens_BS(row, s) = static_cast<std::int32_t>(place % vocab_);
        batch.labels_BS(row, s) = static_cast<std::int32_t>((place + 5) % vocab_);
        batch.real_BS(row, s) = batch.loss_mask_BS(row, s) = s < 3 ? 1 : 0;
      }
    }
  }
  void validation_batch(std::int64_t first, const io::HostBatch& batch) const override {
    training_batch(first, batch);
  }
  std::string description() const override { return "three tokens"; }

 private:
  std::int64_t vocab_;
};

// Four ranks.

TEST(Faults, ExpertTensorWithoutExpertParallelism) {  // Megatron-LM #1628, #1622
  expect_same(on(small_mixtral(), {.expert_tensor = 4}));
}

TEST(Faults, MoreExpertThanDataRanks) {
  expect_same(on(small_mixtral(), {.context = 2, .tensor = 2, .expert = 4}));
}

TEST(Faults, ExpertTensorIsNotTensor) {  // Megatron-LM #6307: another norm, nothing raised
  expect_same(on(small_mixtral(), {.tensor = 2, .expert_tensor = 4}));
  expect_same(on(small_mixtral(), {.tensor = 4, .expert = 2, .expert_tensor = 2}));
}

TEST(Faults, RaggedMasksOverDataContextAndMicroBatches) {
  train::RunConfig config = small_mixtral();
  config.batch.micro = 1;  // eight micro-batches, some without any valid token
  expect_same(on(config, {.context = 2}));
  expect_same(on(config, {.context = 4}));
}

TEST(Faults, RanksAndWholeExpertGroupsWithoutTokens) {
  train::RunConfig config = small_mixtral();
  config.batch = {.sequence = 32, .micro = 1, .global = 2};  // two of four data ranks idle
  expect_same(on(config, {.expert = 2}));                    // ... one whole group of experts
  expect_same(on(config, {.expert = 4}));
  expect_same(on(config, {.expert = 2, .expert_tensor = 2}));
  config.batch.global = 1;
  expect_same(on(config, {.tensor = 2, .expert_tensor = 2}));
}

// Three tokens choose one of eight experts each: in every layer of every step five experts at
// least get nothing, and where four ranks hold two experts each, one rank's experts.
TEST(Faults, ExpertsWithoutTokens) {
  for (train::RunConfig config : {small_mixtral(), small_qwen2_moe()}) {
    config.batch = {.sequence = 8, .micro = 1, .global = 1};
    config.model.moe.top_k = 1;
    config.model.moe.normalize = false;  // else the weight of the only choice is 1
    // Of so few tokens the key biases have gradients near AdamW's usual eps, by which it would
    // divide their rounding.
    config.optimizer.eps = 1.0e-6;
    const ThreeTokens data(config.model.vocab);
    expect_same(on(config, {.expert = 4}), data);
    expect_same(on(config, {.context = 4, .expert = 4}), data);  // a token on each of three ranks
    // The other of two groups of experts has no token at all.
    expect_same(on(config, {.expert = 2}), data);
    expect_same(on(config, {.tensor = 4, .expert_tensor = 2}), data);
    config = on(config, {.context = 2, .tensor = 2, .expert = 2, .expert_tensor = 2});
    config.parallel.sharding = plan::Sharding::kParameters;
    expect_same(config, data);
  }
}

TEST(Faults, TiedEmbeddingsOnFirstAndLastStage) {
  expect_same(on(small_qwen2_moe(), {.pipeline = 2, .tensor = 2}));
  expect_same(on(small_qwen2_moe(), {.pipeline = 4}));
}

TEST(Faults, CopiesOfKeyValueHeads) {
  train::RunConfig config = small_qwen2_moe();
  config.model.kv_heads = 1;
  config.model.qk_norm = true;
  expect_same(on(config, {.tensor = 4}));
  config.model.kv_heads = 2;
  expect_same(on(config, {.tensor = 4, .expert = 2}));
}

TEST(Faults, UnevenStages) {
  train::RunConfig config = on(small_qwen2_moe(), {.pipeline = 4});
  config.parallel.layout = {2, 1, 1, 0};  // the last stage has the head alone
  expect_same(config);
  // The embedding alone, a MoE layer, the dense layer alone, two MoE layers and the head.
  config.parallel.layout = {0, 1, 1, 2};
  expect_same(config);
  config.parallel.layout = {2, 0, 1, 1};  // the second stage holds nothing
  expect_same(config);
}

TEST(Faults, FewerAndMoreMicroBatchesThanStages) {
  for (const std::int64_t global : {1, 3, 7}) {
    train::RunConfig config = on(small_mixtral(), {.pipeline = 4});
    config.batch = {.sequence = 32, .micro = 1, .global = global};
    expect_same(config);
    config = on(config, {.pipeline = 2});
    config.parallel.schedule = plan::PipelineSchedule::kInterleaved;
    config.parallel.chunks = 2;
    expect_same(config);
  }
}

TEST(Faults, VocabularyThatDoesNotDivide) {
  train::RunConfig config = small_mixtral();
  config.model.vocab = 5;  // one tensor rank has no entry at all
  expect_same(on(config, {.tensor = 4}));
}

TEST(Faults, RecomputationCountsNothingTwice) {
  train::RunConfig config = on(small_qwen2_moe(), {.pipeline = 2, .expert = 2});
  config.model.moe.auxiliary_coefficient = 1.0;
  for (const auto recompute : {plan::Recompute::kSelective, plan::Recompute::kFull}) {
    config.precision.recompute = recompute;
    expect_same(config);
  }
}

TEST(Faults, ShardedParametersOfTheWholeModel) {
  train::RunConfig config = on(small_qwen2_moe(), {.tensor = 2});
  config.parallel.sharding = plan::Sharding::kParameters;
  expect_same(config);
  config.precision.recompute = plan::Recompute::kFull;
  expect_same(on(config, {.pipeline = 2, .expert = 2}));
}

}  // namespace
}  // namespace pleat::test
