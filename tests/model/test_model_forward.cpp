// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The forward pass against plain serial loops.

#include <gtest/gtest.h>

#include "model/comparison.hpp"
#include "model/model_cases.hpp"
#include "model/model_problem.hpp"
#include "model/reference_transformer.hpp"

namespace pleat::test {
namespace {

std::vector<double> every_second(const std::vector<double>& values, std::size_t first) {
  std::vector<double> result;
  for (std::size_t i = first; i < values.size(); i += 2) result.push_back(values[i]);
  return result;
}

void expect_forward(const plan::ModelConfig& config, const HostBatch& batch,
                    double tolerance) {
  const HostTensors weights = random_weights(config, 0.4, 7);
  const ReferenceResult<double> expected = reference_forward(config, weights, batch);
  ModelProblem<double> problem(config, batch.sequence);
  problem.set_weights(weights);
  Record("logits").expect_below(
      tolerance, deviation(problem.logits(batch), expected.logits_TV), "of every token");
  problem.evaluate(batch);
  Record("cross_entropy")
      .expect_below(tolerance,
                    deviation({problem.cross_entropy()}, {expected.cross_entropy}),
                    "sum over tokens with loss");
  const auto router = problem.router_losses_L2();
  Record("auxiliary_loss")
      .expect_below(tolerance, deviation(every_second(router, 0), expected.auxiliary_L),
                    "per layer");
  Record("z_loss").expect_below(
      tolerance, deviation(every_second(router, 1), expected.z_L), "per layer");
  EXPECT_EQ(problem.counts_LE(), expected.counts_LE);
}

class ForwardTest : public testing::TestWithParam<ModelCase> {};

TEST_P(ForwardTest, EqualsTheSerialReference) {
  expect_forward(GetParam().config, GetParam().batch, 1e-13);
}

TEST_P(ForwardTest, ConfigurationIsOneThatIsAccepted) {
  EXPECT_NO_THROW(plan::validate(GetParam().config));
}

INSTANTIATE_TEST_SUITE_P(Model, ForwardTest, testing::ValuesIn(model_cases()),
                         [](const auto& info) { return info.param.name; });

// Large enough that the logits are formed in several chunks of tokens.
TEST(ForwardTest, HeadInChunks) {
  plan::ModelConfig config = small_model();
  config.layers = 1;
  config.moe_layer = {true};
  config.vocab = 32768;
  HostBatch batch = random_batch(2, 80, config.vocab, 41);
  batch.pad(1, 20);
  expect_forward(config, batch, 1e-13);
}

TEST(ForwardTest, NamesThePlaceWhereNumbersStopBeingFinite) {
  const plan::ModelConfig config = small_model();
  const HostBatch batch = random_batch(2, 6, config.vocab, 42);
  const auto first_non_finite = [&](const std::string& tensor) {
    HostTensors weights = random_weights(config, 0.4, 7);
    if (!tensor.empty()) weights.at(tensor).assign(weights.at(tensor).size(), HUGE_VAL);
    ModelProblem<double> problem(config, batch.sequence);
    problem.set_weights(weights);
    return problem.first_non_finite(batch);
  };
  EXPECT_EQ(first_non_finite(""), -1);
  EXPECT_EQ(first_non_finite("model.embed_tokens.weight"), 0);
  EXPECT_EQ(first_non_finite("model.layers.0.self_attn.o_proj.weight"), 1);
  EXPECT_EQ(first_non_finite("model.layers.1.mlp.gate.weight"), 2);
  EXPECT_EQ(first_non_finite("model.norm.weight"), 3);
  EXPECT_EQ(first_non_finite("lm_head.weight"), -1) << "the logits are not looked at";
}

}  // namespace
}  // namespace pleat::test
