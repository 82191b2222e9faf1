// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include <gtest/gtest.h>

#include "pleat/train/learning_rate.hpp"

namespace pleat::train {
namespace {

constexpr double kPi = 3.14159265358979323846;

OptimizerSection optimizer(std::int64_t warmup, Schedule schedule) {
  OptimizerSection section;
  section.lr = 1.0e-3;
  section.min_lr = 1.0e-4;
  section.warmup = warmup;
  section.schedule = schedule;
  return section;
}

// The formula of the golden traces, written out.
TEST(LearningRate, CosineAfterWarmup) {
  const OptimizerSection section = optimizer(5, Schedule::kCosine);
  for (int n = 1; n <= 20; ++n) {
    const double expected =
        n <= 5 ? 1.0e-3 * n / 5.0
               : 1.0e-4 + 9.0e-4 * (1.0 + std::cos(kPi * (n - 5) / 15.0)) / 2.0;
    EXPECT_DOUBLE_EQ(learning_rate(section, 20, n), expected) << "step " << n;
  }
}

TEST(LearningRate, LinearReachesTheMinimumAtTheLastStep) {
  const OptimizerSection section = optimizer(2, Schedule::kLinear);
  EXPECT_DOUBLE_EQ(learning_rate(section, 12, 1), 0.5e-3);
  EXPECT_DOUBLE_EQ(learning_rate(section, 12, 2), 1.0e-3);
  EXPECT_DOUBLE_EQ(learning_rate(section, 12, 7), 5.5e-4);
  EXPECT_DOUBLE_EQ(learning_rate(section, 12, 12), 1.0e-4);
}

TEST(LearningRate, ConstantStaysAfterWarmup) {
  const OptimizerSection section = optimizer(4, Schedule::kConstant);
  EXPECT_DOUBLE_EQ(learning_rate(section, 10, 3), 0.75e-3);
  for (int n = 4; n <= 12; ++n) EXPECT_DOUBLE_EQ(learning_rate(section, 10, n), 1.0e-3);
}

TEST(LearningRate, WithoutWarmupTheDecayStartsAtOnce) {
  const OptimizerSection section = optimizer(0, Schedule::kLinear);
  EXPECT_DOUBLE_EQ(learning_rate(section, 10, 1), 1.0e-4 + 9.0e-4 * 0.9);
  EXPECT_DOUBLE_EQ(learning_rate(section, 1, 1), 1.0e-4);
}

TEST(LearningRate, WarmupOverAllSteps) {
  for (const Schedule schedule :
       {Schedule::kCosine, Schedule::kLinear, Schedule::kConstant}) {
    const OptimizerSection section = optimizer(10, schedule);
    EXPECT_DOUBLE_EQ(learning_rate(section, 10, 10), 1.0e-3);
    EXPECT_DOUBLE_EQ(learning_rate(section, 6, 6), 0.6e-3);
  }
}

TEST(LearningRate, StaysAtTheEndBeyondTheLastStep) {
  EXPECT_DOUBLE_EQ(learning_rate(optimizer(0, Schedule::kCosine), 10, 25), 1.0e-4);
  EXPECT_DOUBLE_EQ(learning_rate(optimizer(10, Schedule::kCosine), 10, 11), 1.0e-4);
}

}  // namespace
}  // namespace pleat::train
