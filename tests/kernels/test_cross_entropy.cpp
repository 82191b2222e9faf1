// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/cross_entropy.hpp"

#include <random>

#include "kernels/reference.hpp"
#include "pleat/base/copy.hpp"

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
  fill_tensor(forward, 10.0);
  fill_tensor(both, 10.0);
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
      if (c.mask[t] == 0) {
        EXPECT_EQ(value, 0.0);
      }
    }
    EXPECT_NEAR(sum, 0.0, 1.0e-14) << "a softmax row has gradients that cancel";
    if (c.mask[t] != 0) {
      EXPECT_LT(gradient[t * 17 + static_cast<std::size_t>(c.labels[t])], 0.0);
    }
  }
}

/// \brief Columns begin .. end - 1 of a matrix.
Values columns_of(const Values& values, Index columns, Index begin, Index end) {
  Values part;
  for (Index row = 0; row * columns < static_cast<Index>(values.size()); ++row) {
    const auto first = values.begin() + row * columns;
    part.insert(part.end(), first + begin, first + end);
  }
  return part;
}

/// \brief The parts on every slice, and between them what the ranks' reductions do.
/// \param bounds  first entries of the slices, then the size of the vocabulary
template <class T>
Result run_split(const ExecSpace& exec, const Case& c, const Values& logits, double scale,
                 const std::vector<Index>& bounds) {
  using A = Accumulator<T>;
  Arena scratch("test");
  const auto labels_C = to_device<std::int32_t>(c.labels, c.tokens);
  const auto mask_C = to_device<std::uint8_t>(c.mask, c.tokens);
  const std::size_t slices = bounds.size() - 1;
  std::vector<DeviceView<T, 2>> logits_CV;
  for (std::size_t i = 0; i < slices; ++i) {
    logits_CV.push_back(
        to_device<T>(columns_of(logits, c.vocabulary, bounds[i], bounds[i + 1]), c.tokens,
                     bounds[i + 1] - bounds[i]));
  }

  Values maximum(static_cast<std::size_t>(c.tokens), -1.0e300);
  for (const auto& slice_CV : logits_CV) {
    const DeviceView<A, 1> max_C("max", maximum.size());
    kernels::cross_entropy_max<T>(exec, slice_CV, max_C);
    const Values part = to_host(max_C);
    for (std::size_t t = 0; t < part.size(); ++t) {
      maximum[t] = std::max(maximum[t], part[t]);
    }
  }
  const auto max_C = to_device<A>(maximum, c.tokens);

  std::vector<A> sums(2 * maximum.size(), A(0));
  for (std::size_t i = 0; i < slices; ++i) {
    const DeviceView<A, 2> part_C2("sums", maximum.size(), 2);
    kernels::cross_entropy_sums<T>(exec, bounds[i], logits_CV[i], labels_C, max_C,
                                   part_C2);
    const Values part = to_host(part_C2);
    for (std::size_t j = 0; j < part.size(); ++j) sums[j] += static_cast<A>(part[j]);
  }
  const auto sums_C2 = to_device<A>(sums, c.tokens, 2);

  const DeviceView<double, 0> loss("loss");
  fill_tensor(loss, 10.0);
  kernels::cross_entropy_loss<T>(exec, max_C, sums_C2, mask_C, scratch, loss);
  Result result{to_host(loss)[0] - 10.0, 0.0, Values(logits.size())};
  for (std::size_t i = 0; i < slices; ++i) {
    kernels::cross_entropy_gradient<T>(exec, scale, bounds[i], labels_C, mask_C, max_C,
                                       sums_C2, logits_CV[i]);
    const Values part = to_host(logits_CV[i]);
    const Index size = bounds[i + 1] - bounds[i];
    for (Index t = 0; t < c.tokens; ++t) {
      std::copy_n(part.begin() + t * size, size,
                  result.gradient.begin() + t * c.vocabulary + bounds[i]);
    }
  }
  return result;
}

/// \brief One slice, two and three uneven ones, and with empty ones.
std::vector<std::vector<Index>> slices_of(Index vocabulary) {
  return {{0, vocabulary},
          {0, vocabulary / 3, vocabulary},
          {0, vocabulary - 1, vocabulary},
          {0, (vocabulary + 3) / 4, vocabulary / 2 + 1, vocabulary},
          {0, 0, vocabulary / 2, vocabulary / 2, vocabulary, vocabulary}};
}

TYPED_TEST(CrossEntropy, SlicesTogetherEqualTheFusedKernel) {
  using T = TypeParam;
  constexpr double kScale = 0.25;
  for (const Index tokens : {1, 7, 63}) {
    for (const Index vocabulary : {1, 2, 17, 251, 2500}) {
      const Case c = make_case(tokens, vocabulary);
      const Values logits = random_values(tokens * vocabulary, 1, 5.0);
      const Result fused = run<T>(ExecSpace(), c, logits, kScale);
      for (const auto& bounds : slices_of(vocabulary)) {
        const Result split = run_split<T>(ExecSpace(), c, logits, kScale, bounds);
        EXPECT_NEAR(split.loss, fused.loss, tolerance<T>() * (1.0 + fused.loss));
        expect_close(split.gradient, fused.gradient, tolerance<T>(), "logits_CV");
        const Result alone = run_split<T>(one_thread(), c, logits, kScale, bounds);
        EXPECT_EQ(alone.loss, split.loss) << "with one thread";
        expect_same(alone.gradient, split.gradient, "gradient with one thread");
      }
    }
  }
}

TEST(CrossEntropySlices, GradientEqualsCentralDifferences) {
  constexpr double kScale = 0.25;
  const Case c = make_case(7, 17);
  const Values logits = random_values(7 * 17, 1);
  for (const auto& bounds : slices_of(17)) {
    const auto loss = [&](const Values& at) {
      return kScale * run_split<double>(ExecSpace(), c, at, kScale, bounds).loss;
    };
    const Result result = run_split<double>(ExecSpace(), c, logits, kScale, bounds);
    EXPECT_NEAR(result.loss, loss_reference(c, logits), 1.0e-12);
    expect_gradient(loss, logits, result.gradient, "logits_CV", 7 * 17);
  }
}

TEST(CrossEntropySlices, LargeLogitsInOneSlice) {
  const Case c{2, 3, {0, 1}, {1, 1}};
  const Values logits = {1.0e4, 0.0, 0.0, 1.0e4, -1.0e4, 0.0};
  const Result result = run_split<float>(ExecSpace(), c, logits, 1.0, {0, 1, 3});
  EXPECT_NEAR(result.loss, 2.0e4, 1.0e-9 * 2.0e4);
  EXPECT_NEAR(result.gradient[3], 1.0, 1.0e-6);
  EXPECT_NEAR(result.gradient[4], -1.0, 1.0e-6);
}

TEST(CrossEntropySlices, NanAndInfinityAreNotHidden) {
  const Case c{1, 2, {0}, {1}};
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (const Values& logits : {Values{0.0, bad}, Values{bad, 0.0}}) {
      const Result result = run_split<float>(ExecSpace(), c, logits, 1.0, {0, 1, 2});
      EXPECT_FALSE(std::isfinite(result.loss)) << bad;
    }
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
