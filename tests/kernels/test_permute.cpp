// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/permute.hpp"

#include <random>

#include "kernels/reference.hpp"
#include "pleat/base/error.hpp"

namespace pleat::test {
namespace {

using Integers = std::vector<std::int64_t>;

/// \brief Distinct experts for each token; every fifth token is padding where `padded`.
Integers random_choices(Index tokens, Index choices, Index experts, bool padded) {
  std::mt19937_64 random(
      static_cast<std::uint64_t>(tokens * 1000 + choices * 100 + experts));
  Integers index(static_cast<std::size_t>(tokens * choices), -1);
  Integers all(static_cast<std::size_t>(experts));
  for (Index e = 0; e < experts; ++e) all[static_cast<std::size_t>(e)] = e;
  for (Index t = 0; t < tokens; ++t) {
    if (padded && t % 5 == 0) continue;
    std::shuffle(all.begin(), all.end(), random);
    std::copy_n(all.begin(), choices, index.begin() + t * choices);
  }
  return index;
}

/// \brief The pairs t K + k sorted by expert, then token, then choice.
Integers sorted_pairs(const Integers& index) {
  Integers pairs;
  for (std::size_t i = 0; i < index.size(); ++i) {
    if (index[i] >= 0) pairs.push_back(static_cast<std::int64_t>(i));
  }
  std::stable_sort(pairs.begin(), pairs.end(), [&](std::int64_t a, std::int64_t b) {
    return index[static_cast<std::size_t>(a)] < index[static_cast<std::size_t>(b)];
  });
  return pairs;
}

kernels::Permutation permutation_of(const ExecSpace& exec, const Integers& index,
                                    Index tokens, Index choices, Index experts) {
  Arena scratch("test");
  const kernels::Permutation permutation{
      to_device<std::int64_t>(Integers(experts + 1, -7), experts + 1),
      to_device<std::int64_t>(Integers(index.size(), -7), tokens, choices),
      to_device<std::int64_t>(Integers(index.size(), -7), tokens * choices)};
  kernels::make_permutation(exec, to_device<std::int32_t>(index, tokens, choices),
                            experts, scratch, permutation);
  Kokkos::fence();
  return permutation;
}

void expect_permutation(const kernels::Permutation& permutation, const Integers& index,
                        Index experts) {
  const Integers pairs = sorted_pairs(index);
  Values row(index.size(), -1.0), offsets(static_cast<std::size_t>(experts) + 1);
  for (std::size_t r = 0; r < pairs.size(); ++r) {
    row[static_cast<std::size_t>(pairs[r])] = static_cast<double>(r);
  }
  for (const std::int64_t expert : index) {
    for (Index e = expert + 1; expert >= 0 && e <= experts; ++e) {
      offsets[static_cast<std::size_t>(e)] += 1.0;
    }
  }
  Values pair = to_host(permutation.pair_R);
  pair.resize(pairs.size());
  expect_same(to_host(permutation.offsets_E1), offsets, "offsets_E1");
  expect_same(to_host(permutation.row_TK), row, "row_TK");
  expect_same(pair, Values(pairs.begin(), pairs.end()), "pair_R");
}

struct Case {
  Index tokens, choices, experts;
};
constexpr Case kCases[] = {{0, 2, 4},   {1, 1, 1},     {1, 8, 8},   {7, 3, 3},
                           {63, 2, 8},  {64, 2, 8},    {130, 1, 1}, {130, 4, 60},
                           {130, 8, 8}, {1000, 8, 128}};

TEST(Permutation, EqualsAStableSort) {
  for (const Case& c : kCases) {
    for (const bool padded : {false, true}) {
      const Integers index = random_choices(c.tokens, c.choices, c.experts, padded);
      expect_permutation(
          permutation_of(ExecSpace(), index, c.tokens, c.choices, c.experts), index,
          c.experts);
      expect_permutation(
          permutation_of(one_thread(), index, c.tokens, c.choices, c.experts), index,
          c.experts);
    }
  }
}

TEST(Permutation, AllToOneExpertAndAllPadding) {
  const Integers one(130, 5);
  expect_permutation(permutation_of(ExecSpace(), one, 130, 1, 8), one, 8);
  const Integers none(260, -1);
  expect_permutation(permutation_of(ExecSpace(), none, 130, 2, 8), none, 8);
}

template <class T>
class PermuteRows : public testing::Test {};
TYPED_TEST_SUITE(PermuteRows, Scalars);

TYPED_TEST(PermuteRows, ThereAndBack) {
  using T = TypeParam;
  for (const Case& c : kCases) {
    for (const Index hidden : {1, 8, 17, 251}) {
      const Integers index = random_choices(c.tokens, c.choices, c.experts, true);
      const Integers pairs = sorted_pairs(index);
      const auto rows = static_cast<Index>(pairs.size());
      const auto permutation =
          permutation_of(ExecSpace(), index, c.tokens, c.choices, c.experts);

      const Values x = random_values(c.tokens * hidden, 1);
      const auto x_RD = to_device<T>(Values(rows * hidden, 9.0), rows, hidden);
      kernels::permute_rows<T>(ExecSpace(), permutation,
                               to_device<T>(x, c.tokens, hidden), x_RD);
      const Values y = random_values(rows * hidden, 2);
      Values expected_x(y.size()), expected_y(x.size());
      for (Index r = 0; r < rows; ++r) {
        const Index token = pairs[static_cast<std::size_t>(r)] / c.choices;
        for (Index d = 0; d < hidden; ++d) {
          const auto from = static_cast<std::size_t>(token * hidden + d);
          const auto to = static_cast<std::size_t>(r * hidden + d);
          expected_x[to] = x[from];
          expected_y[from] += y[to];
        }
      }
      expect_same(to_host(x_RD), expected_x, "x_RD");
      const auto y_TD = to_device<T>(Values(x.size(), 9.0), c.tokens, hidden);
      kernels::unpermute_sum<T>(ExecSpace(), permutation, to_device<T>(y, rows, hidden),
                                y_TD);
      expect_close(to_host(y_TD), expected_y, tolerance<T>(), "y_TD");
    }
  }
}

TYPED_TEST(PermuteRows, ValuesThereAndBack) {
  using T = TypeParam;
  for (const Case& c : kCases) {
    const Integers index = random_choices(c.tokens, c.choices, c.experts, true);
    const Integers pairs = sorted_pairs(index);
    const auto rows = static_cast<Index>(pairs.size());
    const auto permutation =
        permutation_of(ExecSpace(), index, c.tokens, c.choices, c.experts);
    const Values value = random_values(c.tokens * c.choices, 1);
    const auto value_R = to_device<T>(Values(rows, 9.0), rows);
    kernels::permute_values<T>(ExecSpace(), permutation,
                               to_device<T>(value, c.tokens, c.choices), value_R);
    Values expected(pairs.size()), back(value.size());
    for (std::size_t r = 0; r < pairs.size(); ++r) {
      const auto pair = static_cast<std::size_t>(pairs[r]);
      expected[r] = value[pair];
      back[pair] = value[pair];
    }
    expect_same(to_host(value_R), expected, "value_R");
    const auto value_TK = to_device<T>(Values(value.size(), 9.0), c.tokens, c.choices);
    kernels::unpermute_values<T>(ExecSpace(), permutation, value_R, value_TK);
    expect_same(to_host(value_TK), back, "value_TK");
  }
}

}  // namespace
}  // namespace pleat::test
