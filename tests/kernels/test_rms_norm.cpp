// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference.hpp"
#include "pleat/kernels/rms_norm.hpp"

namespace pleat::test {
namespace {

constexpr double kEps = 1.0e-5;

/// \brief y = w x / sqrt(mean(x^2) + eps) for rows of `hidden` elements.
Values norm_reference(const Values& x, const Values& w) {
  const std::size_t hidden = w.size();
  Values y(x.size());
  for (std::size_t row = 0; row < x.size(); row += hidden) {
    double squares = 0.0;
    for (std::size_t d = 0; d < hidden; ++d) squares += x[row + d] * x[row + d];
    const double rms = std::sqrt(squares / static_cast<double>(hidden) + kEps);
    for (std::size_t d = 0; d < hidden; ++d) y[row + d] = w[d] * x[row + d] / rms;
  }
  return y;
}

/// \brief norm_reference of heads first .. first + heads - 1 of each row, others
/// unchanged.
Values head_norm_reference(const Values& qkv, const Values& w, Index row_size,
                           Index first, Index heads) {
  const auto head_dim = static_cast<Index>(w.size());
  Values y = qkv;
  for (Index row = 0; row < static_cast<Index>(qkv.size()) / row_size; ++row) {
    for (Index head = first; head < first + heads; ++head) {
      const auto begin = qkv.begin() + row * row_size + head * head_dim;
      const Values normed = norm_reference(Values(begin, begin + head_dim), w);
      std::copy(normed.begin(), normed.end(), y.begin() + (begin - qkv.begin()));
    }
  }
  return y;
}

struct Gradients {
  Values dx, dw;
};

/// \brief rms_norm_backward onto gradients that start at 1, since it adds.
template <class T>
Gradients backward(const ExecSpace& exec, const Values& x, const Values& w,
                   const Values& dy, Index tokens, Index hidden) {
  Arena scratch("test");
  const auto x_TD = to_device<T>(x, tokens, hidden);
  const auto w_D = to_device<T>(w, hidden);
  const auto y_TD = to_device<T>(Values(x.size()), tokens, hidden);
  const auto inverse_T = to_device<Accumulator<T>>(Values(tokens), tokens);
  kernels::rms_norm_forward<T>(exec, x_TD, w_D, kEps, y_TD, inverse_T);
  const auto dx_TD = to_device<T>(Values(x.size(), 1.0), tokens, hidden);
  const auto dw_D = to_device<Gradient<T>>(Values(w.size(), 1.0), hidden);
  kernels::rms_norm_backward<T>(exec, x_TD, w_D, inverse_T,
                                to_device<T>(dy, tokens, hidden), scratch, dx_TD, dw_D);
  return {to_host(dx_TD), to_host(dw_D)};
}

Values minus_one(Values values) {
  for (double& value : values) value -= 1.0;
  return values;
}

template <class T>
class RmsNorm : public testing::Test {};
TYPED_TEST_SUITE(RmsNorm, Storages);

constexpr Index kTokens[] = {1, 7, 63, 130};
constexpr Index kHidden[] = {1, 8, 17, 251, 512};

TYPED_TEST(RmsNorm, ForwardEqualsTheReference) {
  using T = TypeParam;
  const ExecSpace exec;
  for (const Index tokens : kTokens) {
    for (const Index hidden : kHidden) {
      const Values x = random_values<Bf16>(tokens * hidden, 1);
      const Values w = random_values<Bf16>(hidden, 2);
      const auto y_TD = to_device<T>(Values(x.size()), tokens, hidden);
      const auto inverse_T = to_device<Accumulator<T>>(Values(tokens), tokens);
      kernels::rms_norm_forward<T>(exec, to_device<T>(x, tokens, hidden),
                                   to_device<T>(w, hidden), kEps, y_TD, inverse_T);
      expect_close(to_host(y_TD), norm_reference(x, w), tolerance<T>(), "y_TD");
    }
  }
}

TEST(RmsNormBackward, EqualsCentralDifferences) {
  for (const Index tokens : kTokens) {
    for (const Index hidden : kHidden) {
      const Values x = random_values<Bf16>(tokens * hidden, 1);
      const Values w = random_values<Bf16>(hidden, 2);
      const Values dy = random_values<Bf16>(tokens * hidden, 4);
      const Gradients actual = backward<double>(ExecSpace(), x, w, dy, tokens, hidden);
      expect_gradient([&](const Values& at) { return dot(dy, norm_reference(at, w)); }, x,
                      minus_one(actual.dx), "dx_TD");
      expect_gradient([&](const Values& at) { return dot(dy, norm_reference(x, at)); }, w,
                      minus_one(actual.dw), "dw_D");
      const Gradients single = backward<float>(ExecSpace(), x, w, dy, tokens, hidden);
      expect_close(single.dx, actual.dx, tolerance<float>(), "dx_TD in fp32");
      expect_close(single.dw, actual.dw, tolerance<float>(), "dw_D in fp32");
      const Gradients half = backward<Bf16>(ExecSpace(), x, w, dy, tokens, hidden);
      expect_close(half.dx, actual.dx, tolerance<Bf16>(), "dx_TD in bf16");
      expect_close(half.dw, actual.dw, tolerance<float>(), "dw_D in bf16");
    }
  }
}

TEST(RmsNormBackward, HasTheSameBitsOnAnyNumberOfThreads) {
  const Values x = random_values<Bf16>(130 * 251, 1);
  const Values w = random_values<Bf16>(251, 2);
  const Values dy = random_values<Bf16>(130 * 251, 4);
  const Gradients first = backward<float>(ExecSpace(), x, w, dy, 130, 251);
  const Gradients again = backward<float>(ExecSpace(), x, w, dy, 130, 251);
  const Gradients alone = backward<float>(one_thread(), x, w, dy, 130, 251);
  expect_same(again.dw, first.dw, "dw_D again");
  expect_same(alone.dw, first.dw, "dw_D with one thread");
  expect_same(alone.dx, first.dx, "dx_TD with one thread");
}

struct HeadNorm {
  static constexpr Index kFirst = 1, kHeads = 3, kAllHeads = 5;
  Values y, dqkv, dw;
};

template <class T>
HeadNorm head_norm(const Values& x, const Values& w, const Values& dy, Index tokens,
                   Index head_dim) {
  const Index row = HeadNorm::kAllHeads * head_dim;
  const auto w_d = to_device<T>(w, head_dim);
  const auto y_TQ = to_device<T>(x, tokens, row);
  kernels::head_rms_norm_forward<T>(ExecSpace(), HeadNorm::kFirst, HeadNorm::kHeads, head_dim,
                                    w_d, kEps, y_TQ);
  Arena scratch("test");
  const auto dqkv_TQ = to_device<T>(dy, tokens, row);
  const auto dw_d = to_device<Gradient<T>>(Values(w.size()), head_dim);
  kernels::head_rms_norm_backward<T>(ExecSpace(), HeadNorm::kFirst, HeadNorm::kHeads, head_dim,
                                     w_d, kEps, to_device<T>(x, tokens, row), scratch, dqkv_TQ,
                                     dw_d);
  return {to_host(y_TQ), to_host(dqkv_TQ), to_host(dw_d)};
}

TEST(HeadRmsNorm, ForwardAndBackward) {
  for (const Index tokens : kTokens) {
    for (const Index head_dim : {Index{8}, Index{17}, Index{256}}) {
      const Index row = HeadNorm::kAllHeads * head_dim;
      const Values x = random_values<Bf16>(tokens * row, 1);
      const Values w = random_values<Bf16>(head_dim, 2);
      const Values dy = random_values<Bf16>(tokens * row, 4);
      const auto forward = [&](const Values& x_at, const Values& w_at) {
        return head_norm_reference(x_at, w_at, row, HeadNorm::kFirst, HeadNorm::kHeads);
      };
      const HeadNorm actual = head_norm<double>(x, w, dy, tokens, head_dim);
      expect_close(actual.y, forward(x, w), tolerance<double>(), "qkv_TQ");
      expect_gradient([&](const Values& at) { return dot(dy, forward(at, w)); }, x,
                      actual.dqkv, "dqkv_TQ");
      expect_gradient([&](const Values& at) { return dot(dy, forward(x, at)); }, w, actual.dw,
                      "dw_d");
      const HeadNorm half = head_norm<Bf16>(x, w, dy, tokens, head_dim);
      expect_close(half.y, actual.y, tolerance<Bf16>(), "qkv_TQ in bf16");
      expect_close(half.dqkv, actual.dqkv, tolerance<Bf16>(), "dqkv_TQ in bf16");
      expect_close(half.dw, actual.dw, tolerance<float>(), "dw_d in bf16");
    }
  }
}

TEST(RmsNorm, WrongExtentsAreRefused) {
  const DeviceView<float, 2> x_TD("x", 3, 4), y_TD("y", 3, 5);
  const DeviceView<float, 1> w_D("w", 4), inverse_T("r", 3);
  EXPECT_THROW(
      kernels::rms_norm_forward<float>(ExecSpace(), x_TD, w_D, kEps, y_TD, inverse_T),
      InternalError);
}

}  // namespace
}  // namespace pleat::test
