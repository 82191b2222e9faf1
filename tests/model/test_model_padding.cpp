// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Padding takes no part: not in losses, gradients, routing or statistics.

#include <numeric>

#include <gtest/gtest.h>

#include "model/comparison.hpp"
#include "model/model_cases.hpp"
#include "model/model_problem.hpp"

namespace pleat::test {
namespace {

HostBatch padded_batch(std::int64_t vocab) {
  HostBatch batch = random_batch(4, 9, vocab, 61);
  batch.pad(0, 1);
  batch.pad(2, 6);
  batch.pad(3, 9);
  return batch;
}

class PaddingTest : public testing::TestWithParam<plan::AuxiliaryScope> {
 protected:
  PaddingTest() {
    config_.qkv_bias = true;
    config_.moe.shared_ffn = 6;
    config_.moe.shared_gate = true;
    config_.moe.auxiliary_scope = GetParam();
  }
  plan::ModelConfig config_ = small_model();
};

TEST_P(PaddingTest, ItsTokensDoNotMatter) {
  const HostBatch batch = padded_batch(config_.vocab);
  HostBatch other = batch;
  for (std::size_t t = 0; t < other.tokens_T.size(); ++t) {
    if (other.real_T[t] != 0) continue;
    other.tokens_T[t] =
        (other.tokens_T[t] + 5) % static_cast<std::int32_t>(config_.vocab);
    other.labels_T[t] =
        (other.labels_T[t] + 7) % static_cast<std::int32_t>(config_.vocab);
  }
  ModelProblem<double> problem(config_, batch.sequence);
  problem.set_weights(random_weights(config_, 0.4, 7));
  problem.step(batch);
  const double loss = problem.total(scales_of(batch));
  const HostTensors gradients = problem.gradient_tensors();
  problem.step(other);
  EXPECT_EQ(problem.total(scales_of(other)), loss);
  EXPECT_EQ(problem.gradient_tensors(), gradients);
}

TEST_P(PaddingTest, IsRoutedNowhere) {
  const HostBatch batch = padded_batch(config_.vocab);
  ModelProblem<double> problem(config_, batch.sequence);
  problem.set_weights(random_weights(config_, 0.4, 7));
  problem.step(batch);
  const double real = std::accumulate(batch.real_T.begin(), batch.real_T.end(), 0.0);
  const auto counts_LE = problem.counts_LE();
  EXPECT_EQ(std::accumulate(counts_LE.begin(), counts_LE.end(), 0.0),
            real * static_cast<double>(config_.moe.top_k * config_.layers));
  for (const auto& block : problem.transformer().activations()) {
    const auto index_TK = to_host(block.moe.index_TK);
    const auto weight_TK = to_host(block.moe.weight_TK);
    for (std::size_t i = 0; i < index_TK.size(); ++i) {
      const bool is_real =
          batch.real_T[i / static_cast<std::size_t>(config_.moe.top_k)] != 0;
      EXPECT_EQ(index_TK[i] >= 0.0, is_real);
      EXPECT_EQ(weight_TK[i] != 0.0, is_real);
    }
    EXPECT_EQ(block.moe.record.rows, static_cast<std::int64_t>(real) * config_.moe.top_k);
  }
}

INSTANTIATE_TEST_SUITE_P(Model, PaddingTest,
                         testing::Values(plan::AuxiliaryScope::kMicroBatch,
                                         plan::AuxiliaryScope::kSequence),
                         [](const auto& info) {
                           return info.param == plan::AuxiliaryScope::kSequence
                                      ? "sequence"
                                      : "micro_batch";
                         });

// Samples cut to their real length give the same as the padded ones.
TEST(Padding, EqualsShorterSequences) {
  const plan::ModelConfig config = small_model();
  HostBatch batch = random_batch(2, 9, config.vocab, 62);
  batch.pad(0, 4);
  batch.pad(1, 4);
  HostBatch shorter = random_batch(2, 5, config.vocab, 63);
  for (std::size_t b = 0; b < 2; ++b) {
    std::copy_n(batch.tokens_T.begin() + static_cast<std::ptrdiff_t>(9 * b), 5,
                shorter.tokens_T.begin() + static_cast<std::ptrdiff_t>(5 * b));
    std::copy_n(batch.labels_T.begin() + static_cast<std::ptrdiff_t>(9 * b), 5,
                shorter.labels_T.begin() + static_cast<std::ptrdiff_t>(5 * b));
  }
  ModelProblem<double> problem(config, batch.sequence);
  problem.set_weights(random_weights(config, 0.4, 7));
  problem.step(batch);
  const double loss = problem.total(scales_of(batch));
  const HostTensors gradients = problem.gradient_tensors();
  problem.step(shorter);
  Record("loss").expect_below(
      1e-14, deviation({problem.total(scales_of(shorter))}, {loss}), "of the step");
  Record record("gradient");
  for (const auto& [name, gradient] : problem.gradient_tensors()) {
    record.expect_below(1e-13, deviation(gradient, gradients.at(name)), name);
  }
}

}  // namespace
}  // namespace pleat::test
