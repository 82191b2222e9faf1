// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/swiglu.hpp"

#include "kernels/reference.hpp"

namespace pleat::test {
namespace {

Values swiglu_reference(const Values& gate_up, const Values& weight, std::size_t ffn) {
  const std::size_t rows = gate_up.size() / (2 * ffn);
  Values h(rows * ffn);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t f = 0; f < ffn; ++f) {
      const double gate = gate_up[r * 2 * ffn + f];
      const double up = gate_up[r * 2 * ffn + ffn + f];
      h[r * ffn + f] =
          gate / (1.0 + std::exp(-gate)) * up * (weight.empty() ? 1.0 : weight[r]);
    }
  }
  return h;
}

struct Gradients {
  Values dgate_up, h, dweight;
};

/// \brief swiglu_backward with the outputs on the inputs, as the model calls it.
template <class T>
Gradients backward(const Values& gate_up, const Values& weight, const Values& dh,
                   Index rows, Index ffn) {
  const auto gate_up_R2F = to_device<T>(gate_up, rows, 2 * ffn);
  const auto dh_RF = to_device<T>(dh, rows, ffn);
  DeviceView<Accumulator<T>, 1> weight_R, dweight_R;
  if (!weight.empty()) {
    weight_R = to_device<Accumulator<T>>(weight, rows);
    dweight_R = to_device<Accumulator<T>>(Values(weight.size(), 9.0), rows);
  }
  kernels::swiglu_backward<T>(ExecSpace(), gate_up_R2F, weight_R, dh_RF, gate_up_R2F,
                              dh_RF, dweight_R);
  return {to_host(gate_up_R2F), to_host(dh_RF), to_host(dweight_R)};
}

constexpr Index kRows[] = {0, 1, 7, 63, 130};
constexpr Index kFfn[] = {1, 3, 17, 251};

template <class T>
class Swiglu : public testing::Test {};
TYPED_TEST_SUITE(Swiglu, Storages);

TYPED_TEST(Swiglu, ForwardEqualsTheReference) {
  using T = TypeParam;
  for (const Index rows : kRows) {
    for (const Index ffn : kFfn) {
      for (const bool weighted : {false, true}) {
        const Values gate_up = random_values<Bf16>(rows * 2 * ffn, 1, 4.0);
        const Values weight = weighted ? random_values<Bf16>(rows, 2) : Values();
        DeviceView<Accumulator<T>, 1> weight_R;
        if (weighted) weight_R = to_device<Accumulator<T>>(weight, rows);
        const auto h_RF = to_device<T>(Values(rows * ffn, 9.0), rows, ffn);
        kernels::swiglu_forward<T>(ExecSpace(), to_device<T>(gate_up, rows, 2 * ffn),
                                   weight_R, h_RF);
        expect_close(to_host(h_RF),
                     swiglu_reference(gate_up, weight, static_cast<std::size_t>(ffn)),
                     tolerance<T>(), "h_RF");
      }
    }
  }
}

TEST(SwigluBackward, EqualsCentralDifferences) {
  for (const Index rows : kRows) {
    for (const Index ffn : kFfn) {
      for (const bool weighted : {false, true}) {
        const Values gate_up = random_values<Bf16>(rows * 2 * ffn, 1);
        const Values weight = weighted ? random_values<Bf16>(rows, 2) : Values();
        const Values dh = random_values<Bf16>(rows * ffn, 3);
        const auto width = static_cast<std::size_t>(ffn);
        const Gradients actual = backward<double>(gate_up, weight, dh, rows, ffn);
        expect_close(actual.h, swiglu_reference(gate_up, weight, width),
                     tolerance<double>(), "h_RF");
        expect_gradient(
            [&](const Values& at) {
              return dot(dh, swiglu_reference(at, weight, width));
            },
            gate_up, actual.dgate_up, "dgate_up_R2F");
        if (weighted) {
          expect_gradient(
              [&](const Values& at) {
                return dot(dh, swiglu_reference(gate_up, at, width));
              },
              weight, actual.dweight, "dweight_R");
        }
        const Gradients single = backward<float>(gate_up, weight, dh, rows, ffn);
        expect_close(single.dgate_up, actual.dgate_up, tolerance<float>(),
                     "dgate_up in fp32");
        expect_close(single.h, actual.h, tolerance<float>(), "h in fp32");
        expect_close(single.dweight, actual.dweight, tolerance<float>(),
                     "dweight in fp32");
        const Gradients half = backward<Bf16>(gate_up, weight, dh, rows, ffn);
        expect_close(half.dgate_up, actual.dgate_up, tolerance<Bf16>(), "dgate_up in bf16");
        expect_close(half.h, actual.h, tolerance<Bf16>(), "h in bf16");
        expect_close(half.dweight, actual.dweight, tolerance<float>(), "dweight in bf16");
      }
    }
  }
}

TEST(Swiglu, ExtremeGatesStayFinite) {
  const Values gate_up = {-1.0e30, -100.0, 100.0, 1.0e30, 1.0, 1.0, 1.0, 1.0};
  const auto h_RF = to_device<float>(Values(4), 1, 4);
  kernels::swiglu_forward<float>(ExecSpace(), to_device<float>(gate_up, 1, 8),
                                 DeviceView<float, 1>(), h_RF);
  const Values h = to_host(h_RF);
  EXPECT_EQ(h[0], 0.0);
  EXPECT_NEAR(h[1], 0.0, 1.0e-35);
  EXPECT_EQ(h[2], 100.0);
  EXPECT_EQ(static_cast<float>(h[3]), 1.0e30F);
}

}  // namespace
}  // namespace pleat::test
