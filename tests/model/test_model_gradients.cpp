// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The gradient of every parameter, against exact derivatives of the serial
/// reference (dual numbers) and against finite differences of the model's own forward
/// pass.

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "model/comparison.hpp"
#include "model/model_cases.hpp"
#include "model/model_problem.hpp"
#include "model/reference_transformer.hpp"
#include "pleat/base/random.hpp"

namespace pleat::test {
namespace {

constexpr double kDeviation = 0.4;
constexpr std::uint64_t kSeed = 7;

std::vector<double> random_direction(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> direction;
  for (std::size_t i = 0; i < size; ++i) {
    direction.push_back(static_cast<double>(random() >> 11) * 0x1.0p-52 - 1.0);
  }
  const double norm = norm_of(direction);
  for (double& x : direction) x /= norm;
  return direction;
}

std::vector<double> unit_vector(std::size_t size, std::size_t i) {
  std::vector<double> direction(size, 0.0);
  direction[i] = 1.0;
  return direction;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

std::size_t place_of_largest(const std::vector<double>& values) {
  const auto largest =
      std::max_element(values.begin(), values.end(),
                       [](double a, double b) { return std::abs(a) < std::abs(b); });
  return static_cast<std::size_t>(largest - values.begin());
}

/// Derivative of a step's loss along `direction` of one tensor, from the serial
/// reference.
class ReferenceSlope {
 public:
  ReferenceSlope(const plan::ModelConfig& config, const HostTensors& weights)
      : config_(config) {
    for (const auto& [name, values] : weights) {
      weights_[name] = std::vector<Dual>(values.begin(), values.end());
    }
  }
  double along(const std::string& name, const std::vector<double>& direction,
               const HostBatch& batch, const model::LossScales& scales) {
    set_slopes(name, direction);
    const auto result = reference_forward(config_, weights_, batch);
    set_slopes(name, std::vector<double>(direction.size(), 0.0));
    return result.total(scales.cross_entropy, scales.router).slope;
  }

 private:
  void set_slopes(const std::string& name, const std::vector<double>& slopes) {
    std::vector<Dual>& values = weights_.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) values[i].slope = slopes[i];
  }

  const plan::ModelConfig& config_;
  Tensors<Dual> weights_;
};

/// The same by central differences of fourth order of the model itself, along directions
/// of several tensors at once.
double difference_along(ModelProblem<double>& problem, const HostTensors& weights,
                        const HostTensors& directions, const HostBatch& batch) {
  constexpr double kStep = 2e-4;
  const auto loss_at = [&](double distance) {
    for (const auto& [name, direction] : directions) {
      std::vector<double> moved = weights.at(name);
      for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += distance * direction[i];
      problem.set_weights(name, moved);
    }
    return problem.evaluate(batch);
  };
  const double near = loss_at(kStep) - loss_at(-kStep);
  const double far = loss_at(2.0 * kStep) - loss_at(-2.0 * kStep);
  loss_at(0.0);
  return (8.0 * near - far) / (12.0 * kStep);
}

/// The name without the numbers of layer and expert.
std::string kind_of(std::string name) {
  std::erase_if(name, [](unsigned char c) { return std::isdigit(c) != 0; });
  return name;
}

/// What rounding may leave of a gradient that is zero in exact arithmetic is measured
/// against a part of the whole gradient.
double floor_of(const HostTensors& gradients) {
  double sum = 0.0;
  for (const auto& [name, gradient] : gradients) sum += dot(gradient, gradient);
  return std::max(0.01 * std::sqrt(sum), 1e-300);
}

class GradientTest : public testing::TestWithParam<ModelCase> {
 protected:
  const plan::ModelConfig& config_ = GetParam().config;
  const HostBatch& batch_ = GetParam().batch;
  const HostTensors weights_ = random_weights(config_, kDeviation, kSeed);
};

TEST_P(GradientTest, EqualsExactDerivativesOfTheSerialReference) {
  ModelProblem<double> problem(config_, batch_.sequence);
  problem.set_weights(weights_);
  problem.step(batch_);
  ReferenceSlope slope(config_, weights_);
  const HostTensors gradients = problem.gradient_tensors();
  const double floor = floor_of(gradients);
  for (const auto& [name, gradient] : gradients) {
    const double scale = std::max(norm_of(gradient), floor);
    const auto direction = random_direction(gradient.size(), 51);
    const double expected = slope.along(name, direction, batch_, scales_of(batch_));
    Record("directional_derivative")
        .expect_below(1e-12, std::abs(dot(gradient, direction) - expected) / scale, name);
    for (const std::size_t i : {place_of_largest(gradient), gradient.size() / 2}) {
      const double element =
          slope.along(name, unit_vector(gradient.size(), i), batch_, scales_of(batch_));
      Record("single_element")
          .expect_below(1e-12, std::abs(gradient[i] - element) / scale, name);
    }
  }
}

TEST_P(GradientTest, EqualsFiniteDifferencesOfTheForwardPass) {
  ModelProblem<double> problem(config_, batch_.sequence);
  problem.set_weights(weights_);
  problem.step(batch_);
  const HostTensors gradients = problem.gradient_tensors();
  std::map<std::string, HostTensors> directions;
  std::map<std::string, double> slopes;
  for (const auto& [name, gradient] : gradients) {
    const auto& direction = directions[kind_of(name)][name] =
        random_direction(gradient.size(), hash_name(name));
    slopes[kind_of(name)] += dot(gradient, direction);
  }
  for (const auto& [kind, slope] : slopes) {
    const double expected =
        difference_along(problem, weights_, directions.at(kind), batch_);
    Record("finite_difference")
        .expect_below(1e-7, std::abs(slope - expected) / (100.0 * floor_of(gradients)),
                      kind);
  }
}

// Losses and gradients that add up over micro-batches are those of the formula: tokens
// weigh alike wherever they are, router losses are means over the micro-batches.
TEST_P(GradientTest, AccumulatesOverMicroBatches) {
  if (batch_.sequences % 2 != 0) GTEST_SKIP() << "needs an even number of sequences";
  const std::int64_t half = batch_.sequences / 2;
  const model::LossScales scales{.cross_entropy = scales_of(batch_).cross_entropy,
                                 .router = 0.5};
  ModelProblem<double> problem(config_, batch_.sequence);
  problem.set_weights(weights_);
  problem.reset();
  ReferenceSlope slope(config_, weights_);
  for (const std::int64_t first : {std::int64_t{0}, half}) {
    problem.forward_backward(batch_.part(first, half), scales);
  }
  const HostTensors gradients = problem.gradient_tensors();
  const Record record("accumulated_gradient");
  for (const auto& [name, gradient] : gradients) {
    const auto direction = random_direction(gradient.size(), 53);
    double expected = 0.0;
    for (const std::int64_t first : {std::int64_t{0}, half}) {
      expected += slope.along(name, direction, batch_.part(first, half), scales);
    }
    const double scale = std::max(norm_of(gradient), floor_of(gradients));
    record.expect_below(1e-12, std::abs(dot(gradient, direction) - expected) / scale,
                        name);
  }
}

INSTANTIATE_TEST_SUITE_P(Model, GradientTest, testing::ValuesIn(model_cases()),
                         [](const auto& info) { return info.param.name; });

struct Step {
  double total;
  HostTensors gradients;
};

/// A step in micro-batches of `micro` sequences.
Step step_in_parts(const plan::ModelConfig& config, const HostBatch& batch,
                   std::int64_t micro) {
  ModelProblem<double> problem(config, batch.sequence);
  problem.set_weights(random_weights(config, kDeviation, kSeed));
  problem.reset();
  const model::LossScales scales{
      .cross_entropy = scales_of(batch).cross_entropy,
      .router = static_cast<double>(micro) / static_cast<double>(batch.sequences)};
  for (std::int64_t first = 0; first < batch.sequences; first += micro) {
    problem.forward_backward(batch.part(first, micro), scales);
  }
  return {problem.total(scales), problem.gradient_tensors()};
}

void expect_equal_steps(const Step& actual, const Step& expected) {
  Record("loss").expect_below(1e-13, deviation({actual.total}, {expected.total}),
                              "of the step");
  Record record("gradient");
  for (const auto& [name, gradient] : expected.gradients) {
    record.expect_below(1e-12, deviation(actual.gradients.at(name), gradient), name);
  }
}

TEST(MicroBatches, DoNotMatterWithoutRouterLosses) {
  plan::ModelConfig config = small_model();
  config.moe.auxiliary_coefficient = 0.0;
  config.moe.z_coefficient = 0.0;
  HostBatch batch = random_batch(6, 8, config.vocab, 54);
  batch.pad(2, 5);
  batch.loss_mask_T[1] = batch.loss_mask_T[40] = 0;
  const Step whole = step_in_parts(config, batch, 6);
  expect_equal_steps(step_in_parts(config, batch, 1), whole);
  expect_equal_steps(step_in_parts(config, batch, 2), whole);
}

TEST(MicroBatches, DoNotMatterWhenRouterLossesAreMeansOverSequences) {
  plan::ModelConfig config = small_model();
  config.moe.auxiliary_scope = plan::AuxiliaryScope::kSequence;
  HostBatch batch = random_batch(6, 8, config.vocab, 55);
  batch.pad(2, 5);
  const Step whole = step_in_parts(config, batch, 6);
  expect_equal_steps(step_in_parts(config, batch, 1), whole);
  expect_equal_steps(step_in_parts(config, batch, 3), whole);
}

TEST(HeadInChunks, GradientEqualsExactDerivatives) {
  plan::ModelConfig config = small_model();
  config.layers = 1;
  config.moe_layer = {true};
  config.vocab = 32768;
  const HostBatch batch = random_batch(2, 70, config.vocab, 56);
  const HostTensors weights = random_weights(config, kDeviation, kSeed);
  ModelProblem<double> problem(config, batch.sequence);
  problem.set_weights(weights);
  problem.step(batch);
  ReferenceSlope slope(config, weights);
  const HostTensors gradients = problem.gradient_tensors();
  for (const std::string name :
       {"lm_head.weight", "model.norm.weight", "model.layers.0.mlp.gate.weight"}) {
    const auto& gradient = gradients.at(name);
    const auto direction = random_direction(gradient.size(), 57);
    const double expected = slope.along(name, direction, batch, scales_of(batch));
    Record("directional_derivative")
        .expect_below(1e-12,
                      std::abs(dot(gradient, direction) - expected) / norm_of(gradient),
                      name);
  }
}

// The padding between the blocks of the flat buffer stays zero, so that norms over all of
// it are norms over the parameters.
TEST(Gradients, LeaveThePaddingOfTheirBufferZero) {
  const plan::ModelConfig config = small_model();
  ModelProblem<double> problem(config, 8);
  problem.set_weights(random_weights(config, kDeviation, kSeed));
  problem.step(random_batch(2, 8, config.vocab, 58));
  std::vector<double> flat = problem.flat_gradients();
  for (const tensor::ParameterSpec& parameter :
       problem.gradients().layout().parameters()) {
    const auto first = flat.begin() + parameter.offset;
    std::fill(first, first + parameter.local_count(), 0.0);
  }
  EXPECT_EQ(flat, std::vector<double>(flat.size(), 0.0));
}

}  // namespace
}  // namespace pleat::test
