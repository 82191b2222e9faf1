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

TEST(Mapping, NamesWhatDoesNotDivideAndTheNearestDegree) {
  const ModelConfig config = preset("mixtral-8x7b");
  EXPECT_THAT(message_of(config, kBatch, {.pipeline = 5}),
              AllOf(HasSubstr("PL0610"), HasSubstr("parallel.pipeline = 5"),
                    HasSubstr("model.layers = 32"), HasSubstr("degree that does is 4")));
  EXPECT_THAT(message_of(config, kBatch, {.expert = 16}),
              AllOf(HasSubstr("moe.experts = 8"), HasSubstr("degree that does is 8")));
  EXPECT_THAT(message_of(config, kBatch, {.expert_tensor = 3}),
              HasSubstr("moe.ffn = 14336"));
  EXPECT_THAT(message_of(config, kBatch, {.tensor = 12}), HasSubstr("model.heads = 32"));
  EXPECT_THAT(message_of(config, kBatch, {.data = 96}), HasSubstr("micro-batches"));
  EXPECT_THAT(message_of(config, {4096, 3, 256}, {}), HasSubstr("batch.global = 256"));
}

TEST(Mapping, ContextCutsPairsOfChunks) {
  const ModelConfig config = preset("mixtral-8x7b");
  EXPECT_EQ(message_of(config, {48, 1, 1}, {.context = 8}), "");
  EXPECT_THAT(message_of(config, {40, 1, 1}, {.context = 8}),
              HasSubstr("half of batch.sequence = 20"));
  EXPECT_THAT(message_of(config, {41, 1, 1}, {.context = 2}), HasSubstr("is odd"));
}

TEST(Mapping, KeyValueHeadsAreReplicatedEvenly) {
  const ModelConfig config = preset("qwen3-30b-a3b");  // 32 heads, 4 of them for keys
  EXPECT_EQ(message_of(config, kBatch, {.tensor = 16}), "");
  ModelConfig six = config;
  six.heads = 48;
  six.kv_heads = 6;
  EXPECT_THAT(message_of(six, kBatch, {.tensor = 16}), HasSubstr("model.kv_heads = 6"));
  EXPECT_THAT(message_of(six, kBatch, {.tensor = 4}), HasSubstr("parallel.tensor = 4"));
}

}  // namespace
}  // namespace pleat::plan
