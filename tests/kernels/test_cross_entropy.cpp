// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/cross_entropy.hpp"

#include <random>

#include "kernels/reference.hpp"

namespace pleat::test {
namespace {

struct Case {
  Index tokens, vocabulary;
  std::vector<std::int32_t> labels;
  std::vector<std::uint8_t> mask;
};

/// \brief Every third token is masked and has a label that must not be looked up.
Case make_case(Index tokens, Index vocabulary) {
  Case c{tokens, vocabulary, {}, {}};
  std::mt19937 random(3);
  for (Index t = 0; t < tokens; ++t) {
    const bool valid = tokens == 1 || t % 3 != 2;
    const auto label = random() % static_cast<std::uint32_t>(vocabulary);
    c.labels.push_back(valid ? static_cast<std::int32_t>(label) : -100);
    c.mask.push_back(valid ? 1 : 0);
  }
  return c;
}

double loss_reference(const Case& c, const Values& logits) {
  double loss = 0.0;
  for (Index t = 0; t < c.tokens; ++t) {
    if (c.mask[static_cast<std::size_t>(t)] == 0) continue;
    const double* row = logits.data() + t * c.vocabulary;
    const double maximum = *std::max_element(row, row + c.vocabulary);
    double sum = 0.0;
    for (Index v = 0; v < c.vocabulary; ++v) sum += std::exp(row[v] - maximum);
    loss += maximum + std::log(sum) - row[c.labels[static_cast<std::size_t>(t)]];
  }
  return loss;
}

struct Result {
  double loss, loss_of_forward;
  Values gradient;
};

template <class T>
Result run(const ExecSpace& exec, const Case& c, const Values& logits, double scale) {
  Arena scratch("test");
  const auto logits_CV = to_device<T>(logits, c.tokens, c.vocabulary);
  const auto labels_C = to_device<std::int32_t>(c.labels, c.tokens);
  const auto mask_C = to_device<std::uint8_t>(c.mask, c.tokens);
  const DeviceView<double, 0> forward("forward"), both("both");
  Kokkos::deep_copy(forward, 10.0);
  Kokkos::deep_copy(both, 10.0);
  kernels::cross_entropy_forward<T>(exec, logits_CV, labels_C, mask_C, scratch, forward);
  kernels::cross_entropy_forward_backward<T>(exec, scale, labels_C, mask_C, scratch,
                                             logits_CV, both);
  return {to_host(both)[0] - 10.0, to_host(forward)[0] - 10.0, to_host(logits_CV)};
}

constexpr Index kTokens[] = {1, 7, 63, 130};
constexpr Index kVocabulary[] = {1, 2, 17, 251, 1024, 2500};

template <class T>
class CrossEntropy : public testing::Test {};
TYPED_TEST_SUITE(CrossEntropy, Scalars);

TYPED_TEST(CrossEntropy, LossEqualsTheReference) {
  using T = TypeParam;
  for (const Index tokens : kTokens) {
    for (const Index vocabulary : kVocabulary) {
      const Case c = make_case(tokens, vocabulary);
      const Values logits = random_values(tokens * vocabulary, 1, 5.0);
      const double expected = loss_reference(c, logits);
      const Result result = run<T>(ExecSpace(), c, logits, 1.0);
      const double bound = tolerance<T>() * (1.0 + expected);
      EXPECT_NEAR(result.loss, expected, bound) << tokens << " x " << vocabulary;
      EXPECT_EQ(result.loss_of_forward, result.loss);
      const Result alone = run<T>(one_thread(), c, logits, 1.0);
      EXPECT_EQ(alone.loss, result.loss) << "with one thread";
      expect_same(alone.gradient, result.gradient, "gradient with one thread");
    }
  }
}

TEST(CrossEntropyBackward, EqualsCentralDifferences) {
  constexpr double kScale = 0.25;
  for (const Index tokens : kTokens) {
    for (const Index vocabulary : kVocabulary) {
      const Case c = make_case(tokens, vocabulary);
      const Values logits = random_values(tokens * vocabulary, 1);
      const Result exact = run<double>(ExecSpace(), c, logits, kScale);
      expect_gradient([&](const Values& at) { return kScale * loss_reference(c, at); },
                      logits, exact.gradient, "logits_CV");
      const Result single = run<float>(ExecSpace(), c, logits, kScale);
      expect_close(single.gradient, exact.gradient, tolerance<float>(),
                   "logits_CV in fp32");
    }
  }
}

TEST(CrossEntropyBackward, LabelsAndMaskedRows) {
  const Case c = make_case(63, 17);
  const Values logits = random_values(63 * 17, 1);
  const Values gradient = run<double>(ExecSpace(), c, logits, 1.0).gradient;
  for (std::size_t t = 0; t < 63; ++t) {
    double sum = 0.0;
    for (std::size_t v = 0; v < 17; ++v) {
      const double value = gradient[t * 17 + v];
      sum += value;
      if (c.mask[t] == 0) EXPECT_EQ(value, 0.0);
    }
    EXPECT_NEAR(sum, 0.0, 1.0e-14) << "a softmax row has gradients that cancel";
    if (c.mask[t] != 0)
      EXPECT_LT(gradient[t * 17 + static_cast<std::size_t>(c.labels[t])], 0.0);
  }
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  const Case c{3, 3, {0, 1, 2}, {1, 1, 1}};
  const Values logits = {1.0e4, 0.0, 0.0, 1.0e4, -1.0e4, 0.0, -1.0e30, -1.0e30, -1.0e30};
  const Result result = run<float>(ExecSpace(), c, logits, 1.0);
  EXPECT_NEAR(result.loss, 0.0 + 2.0e4 + std::log(3.0), 1.0e-9 * 2.0e4);
  EXPECT_NEAR(result.gradient[3], 1.0, 1.0e-6);
  EXPECT_NEAR(result.gradient[8], 1.0 / 3.0 - 1.0, 1.0e-6);
}

TEST(CrossEntropy, NanAndInfinityAreNotHidden) {
  const Case c{1, 2, {0}, {1}};
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_FALSE(std::isfinite(run<float>(ExecSpace(), c, {0.0, bad}, 1.0).loss)) << bad;
    EXPECT_FALSE(std::isfinite(run<double>(ExecSpace(), c, {bad, 0.0}, 1.0).loss)) << bad;
  }
}

}  // namespace
}  // namespace pleat::test
