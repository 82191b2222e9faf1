// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/adamw.hpp"

#include <limits>

#include "kernels/reference.hpp"
#include "pleat/base/copy.hpp"
#include "pleat/base/error.hpp"

namespace pleat::test {
namespace {

struct State {
  Values w, m, v;
};

/// \brief The published formula, in the order of torch.optim.AdamW.
void step_reference(const kernels::AdamWOptions& o, double scale, const Values& gradient,
                    State& state) {
  const auto n = static_cast<double>(o.step);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i] * scale;
    double& w = state.w[i];
    double& m = state.m[i];
    double& v = state.v[i];
    w -= o.learning_rate * o.weight_decay * w;
    m = o.beta1 * m + (1.0 - o.beta1) * g;
    v = o.beta2 * v + (1.0 - o.beta2) * g * g;
    w -= o.learning_rate * (m / (1.0 - std::pow(o.beta1, n))) /
         (std::sqrt(v) / std::sqrt(1.0 - std::pow(o.beta2, n)) + o.eps);
  }
}

template <class T>
class AdamW : public testing::Test {};
TYPED_TEST_SUITE(AdamW, Scalars);

TYPED_TEST(AdamW, SeveralStepsEqualTheFormula) {
  using T = TypeParam;
  for (const Index count : {1, 63, 4096, 4097, 10007}) {
    for (const double weight_decay : {0.0, 0.1}) {
      State state{random_values(count, 1), Values(count), Values(count)};
      const auto w_N = to_device<T>(state.w, count);
      const auto m_N = to_device<T>(state.m, count);
      const auto v_N = to_device<T>(state.v, count);
      for (std::int64_t step = 1; step <= 6; ++step) {
        const kernels::AdamWOptions options{
            1.0e-3 * static_cast<double>(step), 0.9, 0.95, 1.0e-8, weight_decay, step};
        // Some gradients are 0 throughout: their weights only decay.
        Values gradient =
            random_values(count, 10 + static_cast<std::uint64_t>(step), 0.01);
        for (std::size_t i = 0; i < gradient.size(); i += 7) gradient[i] = 0.0;
        const double scale = 1.0 / static_cast<double>(step);
        const DeviceView<double, 0> scale_view("scale");
        fill_tensor(scale_view, scale);
        step_reference(options, scale, gradient, state);
        kernels::adamw_update<T>(ExecSpace(), options, scale_view,
                                 to_device<T>(gradient, count), m_N, v_N, w_N);
      }
      expect_close(to_host(m_N), state.m, tolerance<T>(), "m_N");
      expect_close(to_host(v_N), state.v, tolerance<T>(), "v_N");
      expect_close(to_host(w_N), state.w, tolerance<T>(), "w_N");
    }
  }
}

TEST(AdamWUpdate, RoundsTheMastersInTheSamePass) {
  constexpr Index kCount = 4099;
  const kernels::AdamWOptions options{1.0e-2, 0.9, 0.95, 1.0e-8, 0.1, 1};
  const auto gradient_N = to_device<float>(random_values(kCount, 1), kCount);
  const auto state = [](std::uint64_t seed) {
    return to_device<float>(random_values(kCount, seed), kCount);
  };
  const auto zeros = [] { return to_device<float>(Values(kCount), kCount); };
  const DeviceView<double, 0> scale("scale");
  const auto alone_N = state(2), master_N = state(2);
  const DeviceView<Bf16, 1> rounded_N("rounded", kCount);
  const auto update = [&](double value) {
    fill_tensor(scale, value);
    kernels::adamw_update<float, Bf16>(ExecSpace(), options, scale, gradient_N, zeros(),
                                       zeros(), master_N, rounded_N);
  };
  update(0.5);
  kernels::adamw_update<float>(ExecSpace(), options, scale, gradient_N, zeros(), zeros(),
                               alone_N);
  const auto alone = to_host(alone_N), master = to_host(master_N), rounded = to_host(rounded_N);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(master[i], alone[i]);
    EXPECT_EQ(rounded[i], static_cast<double>(Bf16(master[i])));
  }
  update(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(to_host(rounded_N), rounded) << "a refused step changes nothing";
}

TEST(AdamWUpdate, TheDecayOfFp32WeightsIsNotRoundedAway) {
  // 1 - lr wd = 1 - 1e-5 has two digits in fp32; the decay itself keeps all of them.
  const double start = 1.0e-3;
  const auto w_N = to_device<float>(Values(1, start), 1);
  const auto m_N = to_device<float>(Values(1), 1);
  const auto v_N = to_device<float>(Values(1), 1);
  const DeviceView<double, 0> scale("scale");
  fill_tensor(scale, 1.0);
  for (std::int64_t step = 1; step <= 1000; ++step) {
    kernels::adamw_update<float>(ExecSpace(), {1.0e-3, 0.9, 0.95, 1.0e-8, 0.01, step},
                                 scale, to_device<float>(Values(1), 1), m_N, v_N, w_N);
  }
  const double decayed = 1.0 - to_host(w_N)[0] / start;
  EXPECT_NEAR(decayed, 1.0 - std::pow(1.0 - 1.0e-5, 1000), 1.0e-4);
}

TEST(AdamWUpdate, StepsCountFromOne) {
  const DeviceView<float, 1> empty("empty", 0);
  EXPECT_THROW(kernels::adamw_update<float>(ExecSpace(), {.step = 0},
                                            DeviceView<double, 0>("scale"), empty, empty,
                                            empty, empty),
               InternalError);
}

TEST(ClipFactor, EqualsTheFormula) {
  const DeviceView<double, 0> squares("squares"), norm("norm"), scale("scale");
  const auto run = [&](double clip, double sum) {
    fill_tensor(squares, sum);
    kernels::clip_factor(ExecSpace(), clip, squares, norm, scale);
    return std::pair(to_host(norm)[0], to_host(scale)[0]);
  };
  EXPECT_EQ(run(1.0, 0.25), std::pair(0.5, 1.0));
  EXPECT_EQ(run(1.0, 16.0), std::pair(4.0, 1.0 / (4.0 + 1.0e-6)));
  EXPECT_EQ(run(1.0, 0.0), std::pair(0.0, 1.0));
  EXPECT_EQ(run(0.0, 16.0), std::pair(4.0, 1.0)) << "clip 0 stands for no clipping";
}

}  // namespace
}  // namespace pleat::test
