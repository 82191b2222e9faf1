// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The same step gives the same bits, and nearly the same on any number of
/// threads.

#include <type_traits>

#include <gtest/gtest.h>

#include "model/comparison.hpp"
#include "model/model_cases.hpp"
#include "model/model_problem.hpp"

namespace pleat::test {
namespace {

class DeterminismTest : public testing::TestWithParam<ModelCase> {
 protected:
  template <class T>
  HostTensors gradients(const ExecSpace& exec = ExecSpace()) {
    const ModelCase& model_case = GetParam();
    ModelProblem<T> problem(model_case.config, model_case.batch.sequence,
                            plan::Recompute::kNone, exec);
    problem.set_weights(random_weights(model_case.config, 0.4, 7));
    problem.step(model_case.batch);
    HostTensors result = problem.gradient_tensors();
    result["loss"] = {problem.total(scales_of(model_case.batch))};
    return result;
  }
};

TEST_P(DeterminismTest, SameBitsInAnotherRun) {
  EXPECT_EQ(gradients<double>(), gradients<double>());
  EXPECT_EQ(gradients<float>(), gradients<float>());
}

TEST_P(DeterminismTest, SameBitsInTheNextStep) {
  const ModelCase& model_case = GetParam();
  ModelProblem<float> problem(model_case.config, model_case.batch.sequence);
  problem.set_weights(random_weights(model_case.config, 0.4, 7));
  problem.step(model_case.batch);
  const HostTensors first = problem.gradient_tensors();
  problem.step(random_batch(1, model_case.batch.sequence, model_case.config.vocab, 81));
  problem.step(model_case.batch);
  EXPECT_EQ(problem.gradient_tensors(), first);
}

TEST_P(DeterminismTest, OneThreadAndTwoAgree) {
  if constexpr (std::is_constructible_v<ExecSpace, int>) {
    if (ExecSpace().concurrency() < 2) GTEST_SKIP() << "needs two threads";
    const HostTensors two = gradients<double>();
    const HostTensors one = gradients<double>(ExecSpace(1));
    Record record("one_thread_against_two");
    for (const auto& [name, gradient] : two) {
      record.expect_below(1e-12, deviation(one.at(name), gradient, 1e-4), name);
    }
  } else {
    GTEST_SKIP() << "the number of threads is fixed";
  }
}

INSTANTIATE_TEST_SUITE_P(Model, DeterminismTest, testing::ValuesIn(model_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pleat::test
