// SPDX-License-Identifier: Apache-2.0
#include "fault_case.hpp"

#include <gtest/gtest.h>

#include "support/world.hpp"

namespace pleat::test {
namespace {

constexpr double kTolerance = 1.0e-10;
constexpr std::int64_t kRanks = 4;

}  // namespace

train::RunConfig on(train::RunConfig config, const comm::Degrees& degrees) {
  config.parallel.pipeline = degrees.pipeline;
  config.parallel.context = degrees.context;
  config.parallel.tensor = degrees.tensor;
  config.parallel.expert = degrees.expert;
  config.parallel.expert_tensor = degrees.expert_tensor;
  return config;
}

void expect_same(const train::RunConfig& config, const io::TokenData& data) {
  train::RunConfig keeping = config;
  keeping.precision.recompute = plan::Recompute::kNone;
  const train::Reference reference(keeping, config.run.steps, data, world());
  for (const auto dispatcher :
       {plan::DispatcherKind::kAllToAll, plan::DispatcherKind::kAllGather}) {
    train::RunConfig mapped = config;
    mapped.parallel.dispatcher = dispatcher;
    const train::VerifyReport report = reference.compare(mapped, data);
    EXPECT_TRUE(report.passes(kTolerance))
        << mapping_text(mapped, kRanks) << ": loss " << report.loss.relative << " "
        << report.loss.place << ", norm " << report.gradient_norm.relative
        << ", gradients " << report.gradients.relative << " " << report.gradients.place
        << ", weights " << report.weights.relative << " " << report.weights.place;
  }
}

void expect_same(const train::RunConfig& config) {
  expect_same(config, RaggedTokens(config.model.vocab, config.run.seed));
}

}  // namespace pleat::test
