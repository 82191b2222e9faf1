// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Twenty training steps with clipping and AdamW against the trace of the
/// reference (tests/golden/README.md).
///
/// Legend: B sequences, S positions, L layers, E experts.

#include <algorithm>

#include <gtest/gtest.h>

#include "model/golden_case.hpp"
#include "pleat/train/learning_rate.hpp"
#include "pleat/train/optimizer.hpp"

namespace pleat::test {
namespace {

/// How far a precision may be from the reference, relative.
struct Tolerances {
  double losses;
  double norms;
};

class TraceTest : public testing::TestWithParam<std::string> {
 protected:
  TraceTest() {
    optimizer_.lr = trace_.number("lr_max");
    optimizer_.min_lr = trace_.number("lr_min");
    optimizer_.warmup = trace_.integer("warmup");
    optimizer_.beta1 = trace_.number("beta1");
    optimizer_.beta2 = trace_.number("beta2");
    optimizer_.eps = trace_.number("eps");
    optimizer_.weight_decay = trace_.number("weight_decay");
    optimizer_.clip = trace_.number("clip");
  }

  /// Tokens and the labels that follow them.
  HostBatch batch_of(std::int64_t step) const;
  template <class T>
  void expect_losses(std::int64_t step, const ModelProblem<T>& model,
                     double tolerance) const;
  template <class T>
  ModelProblem<T> train(const Tolerances& tolerances) const;

  const GoldenCase trace_{GetParam(), "trace.h5"};
  const std::vector<std::int32_t> tokens_ = trace_.integers("trace/tokens");
  const std::int64_t steps_ = trace_.integer("steps");
  train::OptimizerSection optimizer_;
};

HostBatch TraceTest::batch_of(std::int64_t step) const {
  const std::int64_t row = trace_.integer("seq") + 1;
  std::vector<std::int32_t> tokens_T;
  std::vector<std::int32_t> labels_T;
  for (std::int64_t b = 0; b < trace_.integer("batch"); ++b) {
    const auto first = tokens_.begin() + (step * trace_.integer("batch") + b) * row;
    tokens_T.insert(tokens_T.end(), first, first + row - 1);
    labels_T.insert(labels_T.end(), first + 1, first + row);
  }
  return trace_.batch(tokens_T, labels_T);
}

template <class T>
void TraceTest::expect_losses(std::int64_t step, const ModelProblem<T>& model,
                              double tolerance) const {
  const auto at_step = [&](const std::string& name) {
    const auto all = trace_.reals("trace/" + name);
    const auto width = static_cast<std::ptrdiff_t>(all.size()) / steps_;
    return std::vector<double>(all.begin() + step * width,
                               all.begin() + (step + 1) * width);
  };
  const HostBatch batch = batch_of(step);
  const std::string what = fmt::format("step {}", step);
  Record losses("losses");
  losses.expect_below(
      tolerance, deviation({model.total(scales_of(batch))}, at_step("loss_total")), what);
  losses.expect_below(
      tolerance,
      deviation({model.cross_entropy() / static_cast<double>(batch.valid())},
                at_step("loss_ce")),
      what);
  std::vector<double> auxiliary_L;
  std::vector<double> z_L;
  const auto router_losses_L2 = model.router_losses_L2();
  for (std::size_t i = 0; i < router_losses_L2.size(); i += 2) {
    auxiliary_L.push_back(router_losses_L2[i]);
    z_L.push_back(router_losses_L2[i + 1]);
  }
  losses.expect_below(tolerance, deviation(auxiliary_L, at_step("aux_per_layer")), what);
  losses.expect_below(tolerance, deviation(z_L, at_step("z_per_layer")), what);
  const auto counts = trace_.integers("trace/tokens_per_expert");
  const auto counts_LE = model.counts_LE();
  const auto first =
      counts.begin() + step * static_cast<std::ptrdiff_t>(counts_LE.size());
  EXPECT_TRUE(std::equal(counts_LE.begin(), counts_LE.end(), first)) << what;
}

template <class T>
ModelProblem<T> TraceTest::train(const Tolerances& tolerances) const {
  ModelProblem<T> model = trace_.problem<T>();
  const comm::Grid grid;
  train::ParameterStore<T> store(model::make_placement(trace_.config()), grid,
                                 plan::Sharding::kOptimizer);
  const tensor::FlatTensors<T> weights = store.whole_weights();
  train::Optimizer<T> optimizer(optimizer_, store, grid);
  Kokkos::deep_copy(weights.flat(), model.weights().flat());
  const auto rates = trace_.reals("trace/lr");
  const auto norms = trace_.reals("trace/grad_norm");
  Record norm("gradient_norm");
  for (std::int64_t step = 0; step < steps_; ++step) {
    const auto t = static_cast<std::size_t>(step);
    const double rate = train::learning_rate(optimizer_, steps_, step + 1);
    EXPECT_NEAR(rate, rates[t], 1e-15 * rates[t]);
    model.step(batch_of(step));
    expect_losses(step, model, tolerances.losses);
    Kokkos::deep_copy(store.whole_gradients().flat(), model.gradients().flat());
    optimizer.measure(ExecSpace(), store);
    optimizer.update(ExecSpace(), step + 1, rate, store);
    Kokkos::deep_copy(model.weights().flat(), weights.flat());
    norm.expect_below(tolerances.norms,
                      deviation({host_copy(optimizer.gradient_norm())()}, {norms[t]}),
                      fmt::format("step {}", step));
  }
  return model;
}

TEST_P(TraceTest, EveryStepAndTheFinalWeights) {
  ModelProblem<double> model = train<double>({1e-12, 1e-12});
  const HostTensors weights = model.weight_tensors();
  expect_names(trace_.root().group("final_weights"), weights);
  for (const auto& [name, values] : weights) {
    expect_rounded_tensor(trace_.root().dataset("final_weights/" + name), values, 1e-11,
                          1.0);
  }
  const double total = model.evaluate(batch_of(0));
  Record("final_loss")
      .expect_below(1e-12, deviation({total}, trace_.reals("final/loss_total")),
                    "on the batch of step 0");
}

// What stock transformers reaches in fp32: losses 4e-7, norms 6e-6, weights 3e-4.
TEST_P(TraceTest, SinglePrecision) {
  ModelProblem<float> model = train<float>({1e-5, 1e-4});
  Record record("final_weights");
  for (const auto& [name, values] : model.weight_tensors()) {
    const auto expected = trace_.reals("final_weights/" + name);
    record.expect_below(1e-3, deviation(values, expected) * largest_of(expected), name);
  }
}

INSTANTIATE_TEST_SUITE_P(Model, TraceTest, testing::ValuesIn(golden_cases()), test_name);

}  // namespace
}  // namespace pleat::test
