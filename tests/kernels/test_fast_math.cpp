// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "../../src/kernels/fast_math.hpp"

namespace {

using pleat::kernels::detail::host_exponential;

TEST(FastMath, ExponentialHasARelativeErrorBelow2e7) {
  double worst = 0.0;
  for (int i = -8733000; i <= 8837000; i += 13) {
    const float x = static_cast<float>(i) * 1.0e-5F;
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(host_exponential(x) / exact - 1.0));
  }
  EXPECT_LT(worst, 2.0e-7);
  RecordProperty("worst", std::to_string(worst * 1.0e7));
}

TEST(FastMath, ExponentialAtTheEnds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(host_exponential(0.0F), 1.0F);
  EXPECT_EQ(host_exponential(-0.0F), 1.0F);
  EXPECT_EQ(host_exponential(-kInfinity), 0.0F);
  EXPECT_EQ(host_exponential(std::numeric_limits<float>::lowest()), 0.0F);
  EXPECT_EQ(host_exponential(-87.8F), 0.0F);
  EXPECT_EQ(host_exponential(kInfinity), kInfinity);
  EXPECT_EQ(host_exponential(88.5F), kInfinity);
  EXPECT_TRUE(std::isfinite(host_exponential(88.37F)));
  EXPECT_GT(host_exponential(-87.33F), 0.0F);
  EXPECT_EQ(host_exponential(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_TRUE(std::isnan(host_exponential(std::numeric_limits<float>::quiet_NaN())));
}

TEST(FastMath, SigmoidStaysInItsRange) {
  using pleat::kernels::detail::sigmoid;
  EXPECT_EQ(sigmoid(0.0F), 0.5F);
  EXPECT_EQ(sigmoid(1.0e4F), 1.0F);
  EXPECT_EQ(sigmoid(-1.0e4F), 0.0F);
  EXPECT_NEAR(sigmoid(2.0), 1.0 / (1.0 + std::exp(-2.0)), 1.0e-16);
}

}  // namespace
