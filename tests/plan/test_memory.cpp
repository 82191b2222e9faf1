// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "pleat/model/head.hpp"
#include "pleat/plan/memory.hpp"

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
  return {.batch = {512, 4, 4}, .mapping = {}, .recompute = recompute, .scalar_bytes = 4};
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

TEST(Memory, EveryAxisCutsItsPart) {
  const ModelConfig config = preset("mixtral-8x22b");
  const LocalParameters whole = local_parameters(config, {});
  EXPECT_EQ(whole.dense + whole.experts, count_parameters(config).total);
  const LocalParameters folded =
      local_parameters(config, {.pipeline = 8, .tensor = 2, .expert = 8});
  EXPECT_EQ(folded.experts, whole.experts / 64);
  EXPECT_LT(folded.dense, whole.dense / 12);

  MemoryRequest one = request();
  one.batch = {4096, 1, 256};
  MemoryRequest many = one;
  many.mapping = {.pipeline = 8, .data = 8, .tensor = 2, .expert_data = 2, .expert = 8};
  const MemoryUse alone = training_memory(config, one);
  const MemoryUse shared = training_memory(config, many);
  EXPECT_LT(shared.optimizer, shared.parameters * 2.0);
  EXPECT_LT(shared.parameters, alone.parameters / 30.0);
  EXPECT_NEAR(shared.activations, alone.activations / 2.0, 0.01 * alone.activations);
}

}  // namespace
}  // namespace pleat::plan
