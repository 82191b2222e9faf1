// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/elementwise.hpp"

#include "kernels/reference.hpp"

namespace pleat::test {
namespace {

template <class T>
class Elementwise : public testing::Test {};
TYPED_TEST_SUITE(Elementwise, Storages);

constexpr Index kTokens[] = {1, 7, 63, 130};
constexpr Index kHidden[] = {1, 8, 17, 251, 512};

TYPED_TEST(Elementwise, AddInPlaceAndAddBias) {
  using T = TypeParam;
  for (const Index tokens : kTokens) {
    for (const Index hidden : kHidden) {
      const Values x = random_values<T>(tokens * hidden, 1);
      const Values y = random_values<T>(tokens * hidden, 2);
      const Values bias = random_values<T>(hidden, 3);
      const auto y_TD = to_device<T>(y, tokens, hidden);
      kernels::add_in_place<T>(ExecSpace(), to_device<T>(x, tokens, hidden), y_TD);
      kernels::add_bias<T>(ExecSpace(), to_device<T>(bias, hidden), y_TD);
      Values expected(y.size());
      for (std::size_t i = 0; i < y.size(); ++i) {
        expected[i] = y[i] + x[i] + bias[i % static_cast<std::size_t>(hidden)];
      }
      expect_close(to_host(y_TD), expected, 2.0 * tolerance<T>(), "y_TD");
    }
  }
}

TYPED_TEST(Elementwise, AddBiasBackwardAddsTheColumnSums) {
  using T = TypeParam;
  Arena scratch("test");
  for (const Index tokens : kTokens) {
    for (const Index hidden : kHidden) {
      const Values dy = random_values<T>(tokens * hidden, 1);
      Values expected(hidden, 2.0);
      for (std::size_t i = 0; i < dy.size(); ++i) {
        expected[i % static_cast<std::size_t>(hidden)] += dy[i];
      }
      const auto dbias_D = to_device<Gradient<T>>(Values(hidden, 2.0), hidden);
      const auto dy_TD = to_device<T>(dy, tokens, hidden);
      kernels::add_bias_backward<T>(ExecSpace(), dy_TD, scratch, dbias_D);
      expect_close(to_host(dbias_D), expected, tolerance<Gradient<T>>(), "dbias_D");

      const auto alone_D = to_device<Gradient<T>>(Values(hidden, 2.0), hidden);
      kernels::add_bias_backward<T>(one_thread(), dy_TD, scratch, alone_D);
      expect_same(to_host(alone_D), to_host(dbias_D), "dbias_D with one thread");
    }
  }
}

Values gated_reference(const Values& gate, const Values& x, const Values& y) {
  Values result = y;
  const std::size_t hidden = x.size() / gate.size();
  for (std::size_t i = 0; i < x.size(); ++i) {
    result[i] += x[i] / (1.0 + std::exp(-gate[i / hidden]));
  }
  return result;
}

TYPED_TEST(Elementwise, AddSigmoidGated) {
  using T = TypeParam;
  for (const Index tokens : kTokens) {
    for (const Index hidden : kHidden) {
      const Values gate = random_values<T>(tokens, 1, 3.0);
      const Values x = random_values<T>(tokens * hidden, 2);
      const Values y = random_values<T>(tokens * hidden, 3);
      const auto y_TD = to_device<T>(y, tokens, hidden);
      kernels::add_sigmoid_gated<T>(ExecSpace(), to_device<T>(gate, tokens, 1),
                                    to_device<T>(x, tokens, hidden), y_TD);
      expect_close(to_host(y_TD), gated_reference(gate, x, y), tolerance<T>(), "y_TD");
    }
  }
}

TYPED_TEST(Elementwise, SigmoidGatedBackwardEqualsCentralDifferences) {
  using T = TypeParam;
  for (const Index tokens : kTokens) {
    for (const Index hidden : kHidden) {
      const Values gate = random_values<T>(tokens, 1);
      const Values x = random_values<T>(tokens * hidden, 2);
      const Values dy = random_values<T>(tokens * hidden, 3);
      const Values zero(x.size());
      const auto backward = [&]<class S>(S) {
        const auto dx_TD = to_device<S>(Values(x.size(), 9.0), tokens, hidden);
        const auto dgate_T1 = to_device<S>(Values(gate.size(), 9.0), tokens, 1);
        kernels::sigmoid_gated_backward<S>(
            ExecSpace(), to_device<S>(gate, tokens, 1), to_device<S>(x, tokens, hidden),
            to_device<S>(dy, tokens, hidden), dx_TD, dgate_T1);
        return std::pair(to_host(dx_TD), to_host(dgate_T1));
      };
      const auto [dx, dgate] = backward(T());
      const auto [exact_dx, exact_dgate] = backward(double());
      expect_close(dx, exact_dx, tolerance<T>(), "dx_TD");
      expect_close(dgate, exact_dgate, tolerance<T>(), "dgate_T1");
      expect_gradient(
          [&](const Values& at) { return dot(dy, gated_reference(gate, at, zero)); }, x,
          exact_dx, "dx_TD");
      expect_gradient(
          [&](const Values& at) { return dot(dy, gated_reference(at, x, zero)); }, gate,
          exact_dgate, "dgate_T1");
    }
  }
}

TYPED_TEST(Elementwise, SumOfSquares) {
  using T = TypeParam;
  Arena scratch("test");
  const DeviceView<double, 0> result("result");
  for (const Index count : {0, 1, 63, 16383, 16384, 16385, 100003}) {
    const Values x = random_values<T>(count, 1);
    double expected = 0.0;
    for (const double value : x) expected += value * value;
    const auto x_N = to_device<T>(x, count);
    kernels::sum_of_squares<T>(ExecSpace(), x_N, scratch, result);
    const double sum = to_host(result)[0];
    EXPECT_NEAR(sum, expected, 1.0e-13 * expected) << count;
    kernels::sum_of_squares<T>(one_thread(), x_N, scratch, result);
    EXPECT_EQ(to_host(result)[0], sum) << count << " elements, with one thread";
  }
}

TYPED_TEST(Elementwise, HasNonFinite) {
  using T = TypeParam;
  EXPECT_FALSE(kernels::has_non_finite<T>(ExecSpace(), DeviceView<T, 1>("empty", 0)));
  for (const Index count : {1, 17, 100003}) {
    Values x = random_values<T>(count, 1);
    x[0] = std::is_same_v<T, double> ? std::numeric_limits<double>::max()
                                     : 0x1.FEp127;  // the largest in bf16
    EXPECT_FALSE(kernels::has_non_finite<T>(ExecSpace(), to_device<T>(x, count)));
    for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()}) {
      x[static_cast<std::size_t>(count) - 1] = bad;
      EXPECT_TRUE(kernels::has_non_finite<T>(ExecSpace(), to_device<T>(x, count))) << bad;
    }
  }
}

TEST(Convert, RoundsAndWidens) {
  for (const Index count : {0, 1, 4095, 4096, 10007}) {
    const Values x = random_values(count, 1);
    const auto y_N = to_device<Bf16>(Values(x.size(), 9.0), count);
    kernels::convert<float, Bf16>(ExecSpace(), to_device<float>(x, count), y_N);
    expect_same(to_host(y_N), random_values<Bf16>(count, 1), "to bf16");
    const auto back_N = to_device<float>(Values(x.size(), 9.0), count);
    kernels::convert<Bf16, float>(ExecSpace(), y_N, back_N);
    expect_same(to_host(back_N), to_host(y_N), "to fp32");
  }
}

}  // namespace
}  // namespace pleat::test
