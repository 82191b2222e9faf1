// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "pleat/model/head.hpp"
#include "pleat/plan/memory.hpp"
#include "pleat/tensor/parameter_layout.hpp"

namespace pleat::plan {
namespace {

ModelConfig bench_s() {
  ModelConfig config;
  config.layers = 4;
  config.hidden = 512;
  config.heads = 8;
  config.kv_heads = 4;
  config.head_dim = 64;
  config.vocab = 8192;
  config.moe.ffn = 1024;
  config.moe_layer.assign(4, true);
  return config;
}

MemoryRequest request(Recompute recompute = Recompute::kNone) {
  return {.batch = {512, 4, 4}, .recompute = recompute};
}

TEST(Memory, StateIsFourCopiesOfTheParameters) {
  const double bytes = 4.0 * static_cast<double>(count_parameters(bench_s()).total);
  const MemoryUse use = training_memory(bench_s(), request());
  EXPECT_DOUBLE_EQ(use.parameters, bytes);
  EXPECT_DOUBLE_EQ(use.gradients, bytes);
  EXPECT_DOUBLE_EQ(use.optimizer, 2.0 * bytes);
}

TEST(Memory, RecomputationTradesActivationsForTime) {
  const MemoryUse none = training_memory(bench_s(), request());
  const MemoryUse selective = training_memory(bench_s(), request(Recompute::kSelective));
  const MemoryUse full = training_memory(bench_s(), request(Recompute::kFull));
  EXPECT_LT(selective.activations, none.activations);
  EXPECT_LT(full.activations, selective.activations);
  EXPECT_GT(full.recomputed, 0.0);
  EXPECT_EQ(none.recomputed, 0.0);
  EXPECT_LT(full.total(), selective.total());
  EXPECT_LT(selective.total(), none.total());
  // `full` keeps the input of each block, the output and the final norm: 7 rows of 512,
  // and 1.
  EXPECT_DOUBLE_EQ(full.activations, 4.0 * 2048.0 * (6.0 * 512.0 + 1.0));
}

TEST(Memory, GrowsLinearlyWithTheSequence) {
  const auto use_at = [](std::int64_t sequence) {
    MemoryRequest longer = request(Recompute::kFull);
    longer.batch.sequence = sequence;
    return training_memory(bench_s(), longer);
  };
  EXPECT_DOUBLE_EQ(use_at(32768).activations, 64.0 * use_at(512).activations);
  EXPECT_DOUBLE_EQ(use_at(32768).recomputed, 64.0 * use_at(512).recomputed);
  // The chunk of logits has one size; the rest of the workspace is linear.
  EXPECT_EQ(use_at(32768).logits, use_at(8192).logits);
  EXPECT_DOUBLE_EQ(use_at(32768).workspace - use_at(16384).workspace,
                   2.0 * (use_at(16384).workspace - use_at(8192).workspace));
}

TEST(Memory, DoublePrecisionTakesTwice) {
  MemoryRequest fp64 = request();
  fp64.scalar_bytes = 8;
  EXPECT_DOUBLE_EQ(training_memory(bench_s(), fp64).parameters,
                   2.0 * training_memory(bench_s(), request()).parameters);
}

// Weights and activations halve; what is summed stays, and masters are added.
TEST(Memory, Bf16HalvesWhatIsNotSummed) {
  const MemoryUse single = training_memory(bench_s(), request());
  MemoryRequest asked = request();
  asked.scalar_bytes = 2;
  const MemoryUse half = training_memory(bench_s(), asked);
  EXPECT_DOUBLE_EQ(half.parameters, 0.5 * single.parameters);
  EXPECT_DOUBLE_EQ(half.gradients, single.gradients);
  EXPECT_DOUBLE_EQ(half.optimizer, 1.5 * single.optimizer);
  EXPECT_GT(half.activations, 0.5 * single.activations);
  EXPECT_LT(half.activations, 0.55 * single.activations);
}

// The chunk of the head is declared once for computing and once for planning.
TEST(Memory, LogitsAreThoseOfTheHead) {
  for (const std::int64_t vocab : {251, 8192, 151936}) {
    ModelConfig config = bench_s();
    config.vocab = vocab;
    const auto tokens = static_cast<double>(model::head_chunk_tokens(vocab, 2048, 4));
    EXPECT_NEAR(training_memory(config, request()).logits,
                4.0 * tokens * static_cast<double>(vocab),
                4.0 * static_cast<double>(vocab));
  }
}

TEST(Memory, ParametersOfOneRankAreThoseOfTheModel) {
  for (const std::string& name : preset_names()) {
    ModelConfig config = preset(name);
    config.moe_layer[0] = false;
    config.ffn = 96;
    for (const bool tied : {false, true}) {
      config.tied = tied;
      EXPECT_EQ(local_parameters(config, {}, whole_model(config)).total(),
                count_parameters(config).total)
          << name;
    }
  }
}

/// Half of the layers of a model, on the first or the last of two stages.
StageLoad half(const ModelConfig& config, bool first) {
  return {
      .chunks = {{.moe_layers = config.layers / 2}}, .embedding = first, .head = !first};
}

TEST(Memory, StagesTogetherHoldTheModel) {
  ModelConfig config = preset("mixtral-8x22b");
  const auto both = [&] {
    return local_parameters(config, {.pipeline = 2}, half(config, true)).total() +
           local_parameters(config, {.pipeline = 2}, half(config, false)).total();
  };
  EXPECT_EQ(both(), count_parameters(config).total);
  // A tied head is a copy on the last stage.
  config.tied = true;
  EXPECT_EQ(both(), count_parameters(config).total + config.vocab * config.hidden);
}

TEST(Memory, EveryAxisCutsItsPart) {
  const ModelConfig config = preset("mixtral-8x22b");
  const auto local = [&](const Mapping& mapping) {
    return local_parameters(config, mapping, whole_model(config));
  };
  const LocalParameters whole = local({});
  EXPECT_EQ(local({.expert = 8}).experts, whole.experts / 8);
  EXPECT_EQ(local({.expert = 8}).dense, whole.dense);
  EXPECT_EQ(local({.expert = 2, .expert_tensor = 4}).experts, whole.experts / 8);
  // Norms and router stay whole under tensor.
  EXPECT_EQ(whole.replicated, config.layers * config.hidden * (2 + config.moe.experts));
  EXPECT_EQ(local({.tensor = 4}).replicated, whole.replicated);
  EXPECT_EQ(local({.tensor = 4}).dense, whole.dense / 4);
  EXPECT_EQ(local({.tensor = 4}).experts, whole.experts);
  // Eight key/value heads over 16 ranks: two copies of each.
  EXPECT_EQ(16 * local({.tensor = 16}).dense - whole.dense,
            config.layers * config.hidden * 2 * 8 * config.head_dim);
  EXPECT_EQ(local({.data = 4, .context = 2}).total(), whole.total());
}

TEST(Memory, VocabularyIsRoundedUp) {
  ModelConfig config = bench_s();
  config.vocab = 1001;
  EXPECT_EQ(local_parameters(config, {.tensor = 2}, whole_model(config)).outside,
            (2 * 501 + 1) * config.hidden);
}

TEST(Memory, MomentsAreSplitOverTheRanksThatSumTheGradient) {
  const ModelConfig config = bench_s();
  const LocalParameters local = local_parameters(config, {}, whole_model(config));
  MemoryRequest asked = request();
  asked.mapping = {.data = 2, .context = 2, .expert_data = 4};
  EXPECT_DOUBLE_EQ(training_memory(config, asked).optimizer,
                   8.0 * static_cast<double>(local.total()) / 4.0);
  asked.mapping = {.data = 2, .context = 2, .expert_data = 1, .expert = 4};
  const auto dense = static_cast<double>(local.total() - local.experts);
  EXPECT_DOUBLE_EQ(training_memory(config, asked).optimizer,
                   8.0 * (dense / 4.0 + static_cast<double>(local.experts) / 4.0));
}

TEST(Memory, ShardedParametersKeepOneLayerWhole) {
  const ModelConfig config = bench_s();
  const LocalParameters local = local_parameters(config, {}, whole_model(config));
  const LocalParameters layer = layer_parameters(config, {}, true);
  MemoryRequest asked = request();
  asked.mapping = {.data = 8, .expert_data = 8};
  asked.sharding = Sharding::kParameters;
  const MemoryUse use = training_memory(config, asked);
  EXPECT_DOUBLE_EQ(use.parameters,
                   4.0 * (static_cast<double>(local.outside + layer.total()) +
                          static_cast<double>(local.total() - local.outside) / 8.0));
  EXPECT_DOUBLE_EQ(use.gradients, use.parameters);
}

// What MPI holds of sums: a layer's, or of the embedding's two buckets at most, whose cut is
// declared once for the layout and once for planning.
TEST(Memory, ReductionsHoldALayerOrTwoShards) {
  EXPECT_EQ(kLargestShard, tensor::ParameterLayout::kLargestShard);
  const ModelConfig config = bench_s();
  MemoryRequest asked = request();
  EXPECT_EQ(training_memory(config, asked).reduction, 0.0);
  asked.mapping = {.data = 2, .expert_data = 2};
  const auto layer = static_cast<double>(layer_parameters(config, {}, true).total());
  EXPECT_DOUBLE_EQ(training_memory(config, asked).reduction, 4.0 * layer / 2.0);
  // Sharded layers are summed one bucket at a time, into a place of its own.
  asked.sharding = Sharding::kParameters;
  EXPECT_DOUBLE_EQ(training_memory(config, asked).reduction, 2.0 * 4.0 * kLargestShard);
  asked.sharding = Sharding::kOptimizer;
  // An embedding that is larger than a layer and than two cuts.
  ModelConfig wide = config;
  wide.vocab = 1 << 17;
  EXPECT_DOUBLE_EQ(training_memory(wide, asked).reduction, 4.0 * layer / 2.0);
  wide.moe.ffn = 64;
  EXPECT_DOUBLE_EQ(training_memory(wide, asked).reduction, 2.0 * 4.0 * kLargestShard);
  // Nobody else has the experts: what is left is the embedding.
  asked.mapping = {.data = 8, .expert_data = 1, .expert = 8};
  EXPECT_DOUBLE_EQ(training_memory(config, asked).reduction,
                   4.0 * static_cast<double>(config.vocab * config.hidden) / 8.0);
}

TEST(Memory, PaddedRowsAreThoseOfTheCapacity) {
  ModelConfig config = bench_s();
  const double alone = training_memory(config, request()).activations;
  config.moe.drop = {.capacity_factor = 1.5};
  EXPECT_DOUBLE_EQ(training_memory(config, request()).activations, alone);
  config.moe.drop.pad = true;
  EXPECT_GT(training_memory(config, request()).activations, 1.2 * alone);
}

TEST(Memory, ActivationsFallWithContextAndTensor) {
  const ModelConfig config = bench_s();
  const double alone = training_memory(config, request()).activations;
  MemoryRequest asked = request();
  asked.mapping = {.context = 4};
  EXPECT_DOUBLE_EQ(training_memory(config, asked).activations, alone / 4.0);
  // Heads and rows are cut by tensor: q k v as well as the residual stream.
  asked.mapping = {.tensor = 4};
  EXPECT_NEAR(training_memory(config, asked).activations, alone / 4.0, 0.001 * alone);
  // Data ranks and expert ranks change nothing: others' tokens come for those that go.
  asked.mapping = {.data = 4, .expert = 4};
  EXPECT_DOUBLE_EQ(training_memory(config, asked).activations, alone);
}

TEST(Memory, ExpertTensorRanksSeeTheRowsOfAll) {
  const ModelConfig config = bench_s();
  MemoryRequest asked = request();
  const double alone = training_memory(config, asked).activations;
  asked.mapping = {.data = 4, .expert_tensor = 4};
  // Four times the rows of a quarter of the width: gate and up as before, one weight per
  // row.
  const double rows = 4.0 * 512.0 * 2.0;
  EXPECT_DOUBLE_EQ(training_memory(config, asked).activations - alone,
                   4.0 * 4.0 * 3.0 * rows);
}

TEST(Memory, MicroBatchesInFlightAddUp) {
  const ModelConfig config = bench_s();
  MemoryRequest asked = request(Recompute::kFull);
  asked.mapping = {.pipeline = 2};
  asked.stage = half(config, true);
  const double one = training_memory(config, asked).activations;
  asked.stage.chunks[0].micro_batches = 2;
  EXPECT_DOUBLE_EQ(training_memory(config, asked).activations, 2.0 * one);
  // Inputs of two layers and the output.
  EXPECT_DOUBLE_EQ(one, 4.0 * 2048.0 * 3.0 * 512.0);
}

}  // namespace
}  // namespace pleat::plan
