// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pleat/base/error.hpp"
#include "pleat/plan/mapping.hpp"

namespace pleat::plan {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr Batch kBatch{4096, 1, 256};

std::string message_of(const ModelConfig& config, const Batch& batch,
                       const Mapping& mapping) {
  try {
    validate_mapping(config, batch, mapping);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

// The mappings of the study on parallel folding (arXiv 2504.14960, table of MFU).
TEST(Mapping, PublishedOnesAreLegal) {
  const ModelConfig mixtral = preset("mixtral-8x22b");
  EXPECT_EQ(
      message_of(mixtral, kBatch,
                 {.pipeline = 8, .data = 8, .tensor = 2, .expert_data = 2, .expert = 8}),
      "");
  EXPECT_EQ(
      message_of(preset("qwen2-57b-a14b"), kBatch,
                 {.pipeline = 4, .data = 8, .tensor = 2, .expert_data = 4, .expert = 4}),
      "");
  EXPECT_EQ(
      message_of(preset("llama3-8x70b"), kBatch,
                 {.pipeline = 16, .data = 2, .tensor = 8, .expert_data = 2, .expert = 8}),
      "");
}

TEST(Mapping, OneRankFitsEveryModel) {
  for (const std::string& name : preset_names()) {
    EXPECT_EQ(message_of(preset(name), {4095, 3, 9}, {}), "") << name;
  }
}

TEST(Mapping, NamesWhatDoesNotDivideAndTheNearestDegrees) {
  const ModelConfig config = preset("mixtral-8x7b");
  EXPECT_THAT(message_of(config, kBatch, {.expert = 16}),
              AllOf(HasSubstr("PL0610"), HasSubstr("moe.experts = 8"),
                    HasSubstr("nearest legal choice is parallel.expert = 8.")));
  EXPECT_THAT(message_of(config, kBatch, {.expert = 3}),
              HasSubstr("nearest legal choices are parallel.expert = 2, or "
                        "parallel.expert = 4."));
  EXPECT_THAT(message_of(config, kBatch, {.expert_tensor = 3}),
              HasSubstr("moe.ffn = 14336"));
  EXPECT_THAT(message_of(config, kBatch, {.tensor = 12}),
              AllOf(HasSubstr("model.heads = 32"),
                    HasSubstr("parallel.tensor = 8, or parallel.tensor = 16.")));
  EXPECT_THAT(message_of(config, {4096, 3, 256}, {}), HasSubstr("batch.global = 256"));
}

// A rank without a micro-batch computes padding; a rank's share of the vocabulary may be
// smaller than another's.
TEST(Mapping, NeitherMicroBatchesNorVocabularyNeedBeDivided) {
  ModelConfig config = preset("mixtral-8x7b");
  config.vocab = 32001;
  EXPECT_EQ(message_of(config, {4096, 1, 7}, {.data = 96, .tensor = 8}), "");
}

TEST(Mapping, ContextCutsPairsOfChunks) {
  const ModelConfig config = preset("mixtral-8x7b");
  EXPECT_EQ(message_of(config, {48, 1, 1}, {.context = 8}), "");
  EXPECT_THAT(
      message_of(config, {40, 1, 1}, {.context = 8}),
      AllOf(HasSubstr("batch.sequence = 40 is no multiple of 2 * parallel.context"),
            HasSubstr("batch.sequence = 32, or batch.sequence = 48, or ")));
  EXPECT_THAT(message_of(config, {2, 1, 1}, {.context = 2}),
              HasSubstr("are batch.sequence = 4, or parallel.context = 1."));
  // One context rank needs no pairs, only equal sub-sequences.
  EXPECT_EQ(message_of(config, {36, 1, 1}, {.tensor = 4}), "");
  EXPECT_THAT(message_of(config, {34, 1, 1}, {.tensor = 4}),
              HasSubstr("parallel.context * parallel.tensor = 4"));
  // 24 = 2 * 2 * 6 has pairs for two context ranks, but not rows for 16.
  EXPECT_THAT(message_of(config, {24, 1, 1}, {.context = 2, .tensor = 8}),
              HasSubstr("batch.sequence = 16, or batch.sequence = 32, or "));
}

TEST(Mapping, KeyValueHeadsAreReplicatedEvenly) {
  const ModelConfig config = preset("qwen3-30b-a3b");  // 32 heads, 4 of them for keys
  EXPECT_EQ(message_of(config, kBatch, {.tensor = 16}), "");
  ModelConfig six = config;
  six.heads = 48;
  six.kv_heads = 6;
  EXPECT_THAT(message_of(six, {4608, 1, 256}, {.tensor = 16}),
              AllOf(HasSubstr("model.kv_heads = 6"),
                    HasSubstr("are parallel.tensor = 12, or parallel.tensor = 24.")));
  EXPECT_THAT(message_of(six, kBatch, {.tensor = 4}), HasSubstr("parallel.tensor = 4"));
}

TEST(Mapping, DenseAndSharedLayersAreCutByTensor) {
  ModelConfig config = preset("mixtral-8x7b");
  config.moe.shared_ffn = 90;
  EXPECT_THAT(message_of(config, kBatch, {.tensor = 4}),
              HasSubstr("moe.shared_ffn = 90"));
  EXPECT_EQ(message_of(config, kBatch, {.tensor = 2}), "");
  config.moe.shared_ffn = 0;
  config.ffn = 90;
  EXPECT_EQ(message_of(config, kBatch, {.tensor = 4}), "");  // no layer is dense
  config.moe_layer[0] = false;
  EXPECT_THAT(message_of(config, kBatch, {.tensor = 4}), HasSubstr("model.ffn = 90"));
}

TEST(Mapping, VirtualStagesNeedLayers) {
  const ModelConfig config = preset("mixtral-8x7b");  // 32 layers
  EXPECT_EQ(message_of(config, kBatch, {.pipeline = 5}), "");
  EXPECT_EQ(message_of(config, kBatch, {.pipeline = 8, .chunks = 4}), "");
  EXPECT_THAT(message_of(config, kBatch, {.pipeline = 7, .chunks = 5}),
              AllOf(HasSubstr("PL0622"), HasSubstr("35 virtual stages"),
                    HasSubstr("parallel.pipeline = 6, or parallel.chunks = 4, or ")));
}

TEST(Mapping, LayoutsHoldEveryLayerOnce) {
  const ModelConfig config = preset("mixtral-8x7b");
  EXPECT_EQ(message_of(config, kBatch, {.pipeline = 3, .layout = {20, 12, 0}}), "");
  EXPECT_EQ(
      message_of(config, kBatch, {.pipeline = 2, .chunks = 2, .layout = {9, 8, 8, 7}}),
      "");
  EXPECT_THAT(message_of(config, kBatch, {.pipeline = 3, .layout = {20, 12}}),
              AllOf(HasSubstr("PL0623"), HasSubstr("has 2 entries"), HasSubstr("= 3")));
  EXPECT_THAT(message_of(config, kBatch, {.pipeline = 2, .layout = {20, 13}}),
              HasSubstr("[20, 13] holds 33 layers"));
  EXPECT_THAT(message_of(config, kBatch, {.pipeline = 2, .layout = {33, -1}}),
              HasSubstr("at least 0"));
}

}  // namespace
}  // namespace pleat::plan
