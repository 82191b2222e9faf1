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
TYPED_TEST_SUITE(Embedding, Scalars);

TYPED_TEST(Embedding, ForwardAndBackward) {
  using T = TypeParam;
  for (const Index count : {1, 7, 63, 130}) {
    for (const Index vocabulary : {1, 5, 251}) {
      for (const Index hidden : {1, 8, 17, 251}) {
        const auto tokens = random_tokens(count, vocabulary);
        const auto tokens_T = to_device<std::int32_t>(tokens, count);
        const Values w = random_values(vocabulary * hidden, 1);
        const Values dx = random_values(count * hidden, 2);
        Values x(dx.size());
        Values dw(w.size(), 3.0);
        for (Index t = 0; t < count; ++t) {
          for (Index d = 0; d < hidden; ++d) {
            const auto row = static_cast<std::size_t>(t * hidden + d);
            const auto word = static_cast<std::size_t>(
                tokens[static_cast<std::size_t>(t)] * hidden + d);
            x[row] = w[word];
            // In the order of the tokens and in T: the result is bitwise this.
            dw[word] = static_cast<T>(static_cast<T>(dw[word]) + static_cast<T>(dx[row]));
          }
        }
        const auto x_TD = to_device<T>(Values(x.size(), 9.0), count, hidden);
        kernels::embedding_forward<T>(ExecSpace(), tokens_T,
                                      to_device<T>(w, vocabulary, hidden), x_TD);
        expect_same(to_host(x_TD), x, "x_TD");
        const auto dw_VD = to_device<T>(Values(w.size(), 3.0), vocabulary, hidden);
        kernels::embedding_backward<T>(ExecSpace(), tokens_T,
                                       to_device<T>(dx, count, hidden), dw_VD);
        expect_same(to_host(dw_VD), dw, "dw_VD");
      }
    }
  }
}

}  // namespace
}  // namespace pleat::test
