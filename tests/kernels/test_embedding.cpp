// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/embedding.hpp"

#include <random>

#include "kernels/reference.hpp"

namespace pleat::test {
namespace {

std::vector<std::int32_t> random_tokens(Index count, Index vocabulary) {
  std::mt19937 random(7);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (auto& token : tokens) {
    token = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocabulary));
  }
  return tokens;
}

template <class T>
class Embedding : public testing::Test {};
TYPED_TEST_SUITE(Embedding, Storages);

TYPED_TEST(Embedding, ForwardAndBackward) {
  using T = TypeParam;
  using G = Gradient<T>;
  for (const Index count : {1, 7, 63, 130}) {
    for (const Index vocabulary : {1, 5, 251}) {
      for (const Index hidden : {1, 8, 17, 251}) {
        const auto tokens = random_tokens(count, vocabulary);
        const auto tokens_T = to_device<std::int32_t>(tokens, count);
        const Values w = random_values<T>(vocabulary * hidden, 1);
        const Values dx = random_values<T>(count * hidden, 2);
        Values x(dx.size());
        Values dw(w.size(), 3.0);
        for (Index t = 0; t < count; ++t) {
          for (Index d = 0; d < hidden; ++d) {
            const auto row = static_cast<std::size_t>(t * hidden + d);
            const auto word = static_cast<std::size_t>(
                tokens[static_cast<std::size_t>(t)] * hidden + d);
            x[row] = w[word];
            // In the order of the tokens and in G: the result is bitwise this.
            dw[word] = static_cast<G>(static_cast<G>(dw[word]) + static_cast<G>(dx[row]));
          }
        }
        const auto x_TD = to_device<T>(Values(x.size(), 9.0), count, hidden);
        kernels::embedding_forward<T>(ExecSpace(), 0, tokens_T,
                                      to_device<T>(w, vocabulary, hidden), x_TD);
        expect_same(to_host(x_TD), x, "x_TD");
        const auto dw_VD = to_device<G>(Values(w.size(), 3.0), vocabulary, hidden);
        kernels::embedding_backward<T>(ExecSpace(), 0, tokens_T,
                                       to_device<T>(dx, count, hidden), dw_VD);
        expect_same(to_host(dw_VD), dw, "dw_VD");
      }
    }
  }
}

/// \brief Rows begin .. end - 1 of a matrix with `columns` columns.
Values rows_of(const Values& values, Index begin, Index end, Index columns) {
  return {values.begin() + begin * columns, values.begin() + end * columns};
}

// Slices of the vocabulary, uneven ones and an empty one: outputs add up to the whole,
// since each token lies in one slice; gradients are the rows of the whole.
TYPED_TEST(Embedding, SlicesOfTheVocabulary) {
  using T = TypeParam;
  using G = Gradient<T>;
  constexpr Index kCount = 63, kVocabulary = 17, kHidden = 21;
  const auto tokens_T =
      to_device<std::int32_t>(random_tokens(kCount, kVocabulary), kCount);
  const Values w = random_values<T>(kVocabulary * kHidden, 1);
  const auto dx_TD = to_device<T>(random_values<T>(kCount * kHidden, 2), kCount, kHidden);
  const auto x_TD = to_device<T>(Values(kCount * kHidden, 9.0), kCount, kHidden);
  kernels::embedding_forward<T>(ExecSpace(), 0, tokens_T,
                                to_device<T>(w, kVocabulary, kHidden), x_TD);
  const auto dw_VD = to_device<G>(Values(w.size(), 3.0), kVocabulary, kHidden);
  kernels::embedding_backward<T>(ExecSpace(), 0, tokens_T, dx_TD, dw_VD);
  const Values x = to_host(x_TD), dw = to_host(dw_VD);

  const std::vector<Index> bounds = {0, 5, 5, 16, 17};
  Values sum(x.size(), 0.0);
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    const Index begin = bounds[i], end = bounds[i + 1];
    const auto part_TD = to_device<T>(Values(x.size(), 9.0), kCount, kHidden);
    kernels::embedding_forward<T>(
        ExecSpace(), begin, tokens_T,
        to_device<T>(rows_of(w, begin, end, kHidden), end - begin, kHidden), part_TD);
    const Values part = to_host(part_TD);
    for (std::size_t j = 0; j < sum.size(); ++j) {
      ASSERT_TRUE(part[j] == 0.0 || sum[j] == 0.0) << "a token in two slices";
      sum[j] += part[j];
    }
    const auto slice_VD =
        to_device<G>(Values((end - begin) * kHidden, 3.0), end - begin, kHidden);
    kernels::embedding_backward<T>(ExecSpace(), begin, tokens_T, dx_TD, slice_VD);
    expect_same(to_host(slice_VD), rows_of(dw, begin, end, kHidden), "dw_VD of a slice");
  }
  expect_same(sum, x, "x_TD of all slices");
}

}  // namespace
}  // namespace pleat::test
