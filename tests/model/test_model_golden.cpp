// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief One forward and backward pass against the reference of Hugging Face
/// transformers in fp64 (tests/golden/README.md): everything that it wrote down.
///
/// Legend: B sequences, S positions, T = B S tokens, D hidden, E experts, K experts per
/// token, L layers, all of them MoE layers.

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "model/golden_case.hpp"
#include "pleat/kernels/elementwise.hpp"

namespace pleat::test {
namespace {

constexpr double kTolerance = 1e-12;

std::vector<double> part(const std::vector<double>& values, std::int64_t count) {
  return {values.begin(), values.begin() + count};
}

std::vector<double> difference(const std::vector<double>& a,
                               const std::vector<double>& b) {
  std::vector<double> result;
  for (std::size_t i = 0; i < a.size(); ++i) result.push_back(a[i] - b[i]);
  return result;
}

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  void expect(const std::string& quantity, const std::vector<double>& actual,
              const std::string& path) const {
    Record(quantity).expect_below(kTolerance, deviation(actual, golden_.reals(path)),
                                  path);
  }

  void expect_router(std::int64_t layer, const model::MoeActivations<double>& moe) const;
  void expect_choices(const std::string& path,
                      const model::MoeActivations<double>& moe) const;

  GoldenCase golden_{GetParam(), "golden.h5"};
  const plan::ModelConfig& config_ = golden_.config();
  HostBatch batch_ = golden_.batch(golden_.integers("inputs/input_ids"),
                                   golden_.integers("inputs/labels"));
};

TEST_P(GoldenTest, LogitsAndResidualStream) {
  ModelProblem<double> model = golden_.problem<double>();
  expect("logits", model.logits(batch_), "forward/logits");

  // debug/ holds the first sequence; hidden_out of a layer is the next one's input.
  const std::int64_t count = batch_.sequence * config_.hidden;
  const auto& blocks = model.transformer().activations();
  std::vector<double> x_SD = part(to_host(blocks[0].attention.x_TD), count);
  expect("embedding", x_SD, "debug/embed");
  for (std::size_t l = 0; l < blocks.size(); ++l) {
    const std::string layer = "debug/layer" + std::to_string(l);
    const auto middle_SD = part(to_host(blocks[l].middle_TD), count);
    expect("attention_output", difference(middle_SD, x_SD), layer + "/attn_out");
    if (l + 1 == blocks.size()) break;
    x_SD = part(to_host(blocks[l + 1].attention.x_TD), count);
    expect("moe_output", difference(x_SD, middle_SD), layer + "/mlp_out");
    expect("residual_stream", x_SD, layer + "/hidden_out");
  }
}

void GoldenTest::expect_choices(const std::string& path,
                                const model::MoeActivations<double>& moe) const {
  const auto index_TK = to_host(moe.index_TK);
  const auto weight_TK = to_host(moe.weight_TK);
  const auto expected_index_TK = golden_.integers(path + "topk_index");
  const auto expected_weight_TK = golden_.reals(path + "topk_weight");
  ASSERT_EQ(index_TK.size(), expected_index_TK.size());
  const auto experts = static_cast<std::size_t>(config_.moe.experts);
  const auto top_k = static_cast<std::size_t>(config_.moe.top_k);
  // Weights by expert: the order of the choices is free, and so are the bits of a tie.
  std::vector<double> actual_TE(static_cast<std::size_t>(batch_.tokens()) * experts, 0.0);
  std::vector<double> expected_TE = actual_TE;
  for (std::size_t i = 0; i < index_TK.size(); ++i) {
    const std::size_t row = i / top_k * experts;
    actual_TE[row + static_cast<std::size_t>(index_TK[i])] = weight_TK[i];
    expected_TE[row + static_cast<std::size_t>(expected_index_TK[i])] =
        expected_weight_TK[i];
  }
  for (std::size_t i = 0; i < actual_TE.size(); ++i) {
    EXPECT_EQ(actual_TE[i] != 0.0, expected_TE[i] != 0.0) << path << "choice " << i;
  }
  Record("router_weights")
      .expect_below(kTolerance, deviation(actual_TE, expected_TE), path);
}

void GoldenTest::expect_router(std::int64_t layer,
                               const model::MoeActivations<double>& moe) const {
  const std::string path = fmt::format("router/layer{}/", layer);
  expect("router_logits", to_host(moe.logits_TE), path + "logits");
  expect("router_scores", to_host(moe.scores_TE), path + "scores");
  expect_choices(path, moe);
  const auto counts_E = to_host(moe.statistics.counts_GE);
  const auto tokens_per_expert = golden_.integers(path + "tokens_per_expert");
  EXPECT_EQ(counts_E,
            std::vector<double>(tokens_per_expert.begin(), tokens_per_expert.end()));
  std::vector<double> f_E = counts_E;
  for (double& f : f_E) f /= static_cast<double>(batch_.tokens() * config_.moe.top_k);
  expect("router_f", f_E, path + "f");
  std::vector<double> p_E = to_host(moe.statistics.probability_sum_GE);
  for (double& p : p_E) p /= static_cast<double>(batch_.tokens());
  expect("router_P", p_E, path + "P");
}

TEST_P(GoldenTest, RouterAndLosses) {
  ModelProblem<double> model = golden_.problem<double>();
  const double total = model.evaluate(batch_);
  expect("total_loss", {total}, "loss/total");
  expect("cross_entropy", {model.cross_entropy() / static_cast<double>(batch_.tokens())},
         "loss/ce");
  const auto layers = golden_.root().int64_array_attribute("moe_layers");
  ASSERT_EQ(static_cast<std::int64_t>(layers.size()), config_.layers);
  const auto losses_L2 = model.router_losses_L2();
  const auto counts_LE = model.counts_LE();
  double auxiliary = 0.0;
  double z = 0.0;
  for (const std::int64_t layer : layers) {
    const auto l = static_cast<std::size_t>(layer);
    const auto& moe = model.transformer().activations()[l].moe;
    expect_router(layer, moe);
    const std::string path = fmt::format("router/layer{}/", layer);
    expect("auxiliary_loss", {losses_L2[2 * l]}, path + "aux_loss");
    expect("z_loss", {losses_L2[2 * l + 1]}, path + "z_loss");
    auxiliary += losses_L2[2 * l];
    z += losses_L2[2 * l + 1];
    const auto first = counts_LE.begin() + layer * config_.moe.experts;
    EXPECT_EQ(std::vector<double>(first, first + config_.moe.experts),
              to_host(moe.statistics.counts_GE));
  }
  expect("auxiliary_loss", {auxiliary}, "loss/aux");
  expect("z_loss", {z}, "loss/z");
}

// Also where the coefficient is 0 in the golden run.
TEST_P(GoldenTest, AuxiliaryLossWithoutItsCoefficient) {
  golden_.config().moe.auxiliary_coefficient = 1.0;
  ModelProblem<double> model = golden_.problem<double>();
  model.evaluate(batch_);
  const auto losses_L2 = model.router_losses_L2();
  for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
    expect("auxiliary_loss", {losses_L2[static_cast<std::size_t>(2 * layer)]},
           fmt::format("router/layer{}/aux_loss_over_coeff", layer));
  }
}

// The loss of each token, singled out by the loss mask.
TEST_P(GoldenTest, TokenLosses) {
  ModelProblem<double> model = golden_.problem<double>();
  std::vector<double> losses_T;
  for (std::size_t t = 0; t < batch_.loss_mask_T.size(); ++t) {
    batch_.loss_mask_T.assign(batch_.loss_mask_T.size(), 0);
    batch_.loss_mask_T[t] = 1;
    model.evaluate(batch_);
    losses_T.push_back(model.cross_entropy());
  }
  expect("token_losses", losses_T, "forward/token_loss");
}

TEST_P(GoldenTest, EveryGradient) {
  ModelProblem<double> model = golden_.problem<double>();
  model.step(batch_);
  expect("total_loss", {model.total(scales_of(batch_))}, "loss/total");
  const HostTensors gradients = model.gradient_tensors();
  expect_names(golden_.root().group("grads"), gradients);
  for (const auto& [name, gradient] : gradients) {
    const io::Hdf5Dataset expected = golden_.root().dataset("grads/" + name);
    expect_rounded_tensor(expected, gradient, kTolerance,
                          std::max(largest_of(expected.read_all<double>()), 1e-300));
  }

  Arena scratch("golden");
  const DeviceView<double, 0> sum("golden");
  kernels::sum_of_squares<double>(ExecSpace(), model.gradients().flat(), scratch, sum);
  expect("gradient_norm", {std::sqrt(to_host(sum).front())}, "loss/grad_norm");
}

// fp32 as a user would train.
TEST_P(GoldenTest, SinglePrecision) {
  ModelProblem<float> model = golden_.problem<float>();
  model.step(batch_);
  Record("fp32_loss")
      .expect_below(
          1e-5, deviation({model.total(scales_of(batch_))}, golden_.reals("loss/total")),
          "total");
  Record("fp32_cross_entropy")
      .expect_below(
          1e-5,
          deviation({model.cross_entropy() / static_cast<double>(batch_.tokens())},
                    golden_.reals("loss/ce")),
          "mean");
  Record("fp32_gradient_norm")
      .expect_below(
          1e-4,
          deviation({norm_of(model.flat_gradients())}, golden_.reals("loss/grad_norm")),
          "all parameters");
  Record("fp32_logits")
      .expect_below(1e-4,
                    deviation(model.logits(batch_), golden_.reals("forward/logits")),
                    "all tokens");
  Record gradients("fp32_gradients");
  for (const auto& [name, gradient] : model.gradient_tensors()) {
    gradients.expect_below(
        1e-3, deviation(gradient, golden_.reals("grads/" + name), 1e-6), name);
  }
}

INSTANTIATE_TEST_SUITE_P(Model, GoldenTest, testing::ValuesIn(golden_cases()), test_name);

}  // namespace
}  // namespace pleat::test
