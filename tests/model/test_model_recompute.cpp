// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Recomputation changes memory and nothing else; memory is taken once and grows
/// linearly with the sequence.

#include <gtest/gtest.h>

#include "model/comparison.hpp"
#include "model/model_cases.hpp"
#include "model/model_problem.hpp"

namespace pleat::test {
namespace {

using plan::Recompute;

template <class T>
struct Results {
  double cross_entropy;
  std::vector<double> router_losses_L2;
  std::vector<double> counts_LE;
  HostTensors gradients;
  bool operator==(const Results&) const = default;
};

template <class T>
Results<T> results_of(const plan::ModelConfig& config, const HostBatch& batch,
                      Recompute recompute) {
  ModelProblem<T> problem(config, batch.sequence, recompute);
  problem.set_weights(random_weights(config, 0.4, 7));
  problem.step(batch);
  return {problem.cross_entropy(), problem.router_losses_L2(), problem.counts_LE(),
          problem.gradient_tensors()};
}

class RecomputeTest : public testing::TestWithParam<ModelCase> {};

template <class T>
void expect_same_bits(const ModelCase& model_case) {
  const auto kept = results_of<T>(model_case.config, model_case.batch, Recompute::kNone);
  for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
    EXPECT_TRUE(results_of<T>(model_case.config, model_case.batch, recompute) == kept)
        << (recompute == Recompute::kFull ? "full" : "selective");
  }
}

TEST_P(RecomputeTest, GivesTheSameBits) {
  expect_same_bits<double>(GetParam());
  expect_same_bits<float>(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Model, RecomputeTest, testing::ValuesIn(model_cases()),
                         [](const auto& info) { return info.param.name; });

/// Little work, but tensors that are large beside the smallest chunk of an arena.
plan::ModelConfig wide_model() {
  plan::ModelConfig config = small_model();
  config.layers = 4;
  config.moe_layer = {false, true, true, true};
  config.ffn = 64;
  config.hidden = 256;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_dim = 8;
  config.moe.ffn = 96;
  config.moe.shared_ffn = 32;
  config.moe.shared_gate = true;
  return config;
}

std::size_t workspace_bytes(Recompute recompute, std::int64_t sequence) {
  const plan::ModelConfig config = wide_model();
  ModelProblem<float> problem(config, sequence, recompute);
  problem.set_weights(random_weights(config, 0.1, 7));
  problem.step(random_batch(1, sequence, config.vocab, 71));
  return problem.workspace_bytes();
}

TEST(Memory, FullRecomputationNeedsLessThanSelectiveThanNone) {
  const auto none = workspace_bytes(Recompute::kNone, 1024);
  const auto selective = workspace_bytes(Recompute::kSelective, 1024);
  const auto full = workspace_bytes(Recompute::kFull, 1024);
  RecordProperty("bytes", fmt::format("{} {} {}", none, selective, full));
  EXPECT_LT(selective, none * 19 / 20);
  EXPECT_LT(full, selective * 3 / 4);
}

TEST(Memory, GrowsLinearlyWithTheSequence) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    const auto at_1024 = static_cast<double>(workspace_bytes(recompute, 1024));
    const auto at_2048 = static_cast<double>(workspace_bytes(recompute, 2048));
    const auto at_4096 = static_cast<double>(workspace_bytes(recompute, 4096));
    const char* const name = recompute == Recompute::kFull ? "bytes_full" : "bytes_none";
    RecordProperty(name, fmt::format("{} {} {}", at_1024, at_2048, at_4096));
    EXPECT_NEAR((at_4096 - at_2048) / (at_2048 - at_1024), 2.0, 0.2) << name;
    EXPECT_LT(at_4096, 4.1 * at_1024) << name;
  }
}

/// The second step merges what the first one took piece by piece.
TEST(Memory, IsTakenInTheFirstTwoStepsAlone) {
  for (const Recompute recompute :
       {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    const plan::ModelConfig config = wide_model();
    ModelProblem<float> problem(config, 512, recompute);
    problem.set_weights(random_weights(config, 0.1, 7));
    problem.step(random_batch(2, 512, config.vocab, 71));
    problem.step(random_batch(2, 512, config.vocab, 72));
    const auto allocations = problem.workspace_allocations();
    for (std::uint64_t seed = 73; seed < 76; ++seed) {
      const HostBatch batch = random_batch(2, 512, config.vocab, seed);
      problem.step(batch);
      problem.evaluate(batch);
    }
    EXPECT_EQ(problem.workspace_allocations(), allocations);
  }
}

}  // namespace
}  // namespace pleat::test
