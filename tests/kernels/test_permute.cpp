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
      to_device<std::int64_t>(Integers(index.size(), -7), tokens, choices)};
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
  expect_same(to_host(permutation.offsets_E1), offsets, "offsets_E1");
  expect_same(to_host(permutation.row_TK), row, "row_TK");
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
TYPED_TEST_SUITE(PermuteRows, Storages);

TYPED_TEST(PermuteRows, ThereAndBack) {
  using T = TypeParam;
  for (const Case& c : kCases) {
    for (const Index hidden : {1, 8, 17, 251}) {
      const Integers index = random_choices(c.tokens, c.choices, c.experts, true);
      const Integers pairs = sorted_pairs(index);
      const auto rows = static_cast<Index>(pairs.size());
      const auto permutation =
          permutation_of(ExecSpace(), index, c.tokens, c.choices, c.experts);

      const Values x = random_values<T>(c.tokens * hidden, 1);
      const auto x_RD = to_device<T>(Values(rows * hidden, 9.0), rows, hidden);
      kernels::permute_rows<T>(ExecSpace(), permutation,
                               to_device<T>(x, c.tokens, hidden), x_RD);
      const Values y = random_values<T>(rows * hidden, 2);
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
    const Values value = random_values<T>(c.tokens * c.choices, 1);
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

TEST(Permutation, PaddedExpertsHaveEqualRows) {
  for (const Case& c : kCases) {
    const Integers index = random_choices(c.tokens, c.choices, c.experts, true);
    const Integers pairs = sorted_pairs(index);
    const auto permutation =
        permutation_of(ExecSpace(), index, c.tokens, c.choices, c.experts);
    // The fullest expert fits exactly.
    Integers count(static_cast<std::size_t>(c.experts));
    Values row(index.size(), -1.0);
    for (const std::int64_t pair : pairs) {
      row[static_cast<std::size_t>(pair)] = static_cast<double>(
          count[static_cast<std::size_t>(index[static_cast<std::size_t>(pair)])]++);
    }
    const Index rows = *std::max_element(count.begin(), count.end());
    Values offsets;
    for (Index e = 0; e <= c.experts; ++e)
      offsets.push_back(static_cast<double>(e * rows));
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (index[i] >= 0) row[i] += static_cast<double>(index[i] * rows);
    }
    kernels::pad_permutation(ExecSpace(),
                             to_device<std::int32_t>(index, c.tokens, c.choices), rows,
                             permutation);
    expect_same(to_host(permutation.offsets_E1), offsets, "offsets_E1");
    expect_same(to_host(permutation.row_TK), row, "row_TK");
  }
}

TEST(PermutationDeathTest, MorePairsThanPaddedRowsEndTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Integers index{0, 0, 0};
  const auto permutation = permutation_of(ExecSpace(), index, 3, 1, 2);
  const auto index_TK = to_device<std::int32_t>(index, 3, 1);
  EXPECT_DEATH(
      {
        kernels::pad_permutation(ExecSpace(), index_TK, 2, permutation);
        Kokkos::fence();
      },
      "more pairs than rows");
}

TEST(SelectExperts, NumbersThoseOfARange) {
  // Experts 2 and 3 of six; four tokens, two choices each.
  const Integers index{0, 2, 3, 5, -1, -1, 3, 2};
  const auto plain_TK = to_device<std::int32_t>(index, 4, 2);
  kernels::select_experts(ExecSpace(), plain_TK, 2, 2);
  expect_same(to_host(plain_TK), {-1, 0, 1, -1, -1, -1, 1, 0}, "plain_TK");
  // Tokens 0 and 1 come from one source, 2 and 3 from another.
  const auto sources_TK = to_device<std::int32_t>(index, 4, 2);
  kernels::select_experts(ExecSpace(), sources_TK, 2, 2, 2);
  expect_same(to_host(sources_TK), {-1, 0, 2, -1, -1, -1, 3, 1}, "sources_TK");
}

TYPED_TEST(PermuteRows, SegmentsThereAndBack) {
  using T = TypeParam;
  // Five segments, one of them empty, whose order is turned round.
  const Integers lengths{3, 1, 0, 40, 7};
  Integers segments;
  Values to;
  std::int64_t from = 0;
  for (const std::int64_t length : lengths) {
    segments.insert(segments.end(), {from, 51 - from - length, length});
    for (std::int64_t i = 0; i < length; ++i) {
      to.push_back(static_cast<double>(51 - from - length + i));
    }
    from += length;
  }
  const DeviceView<std::int64_t, 1> to_R("to_R", 51);
  kernels::place_segments(ExecSpace(), to_device<std::int64_t>(segments, 5, 3), to_R);
  expect_same(to_host(to_R), to, "to_R");
  for (const Index hidden : {1, 17, 64}) {
    const Values x = random_values<T>(51 * hidden, 1);
    const auto x_RD = to_device<T>(x, 51, hidden);
    const DeviceView<T, 2> y_RD("y_RD", 51, hidden), back_RD("back_RD", 51, hidden);
    kernels::scatter_rows<T>(ExecSpace(), to_R, x_RD, y_RD);
    const Values y = to_host(y_RD);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto width = static_cast<std::size_t>(hidden);
      const auto row = static_cast<std::size_t>(to[i / width]);
      ASSERT_EQ(y[row * width + i % width], x[i]);
    }
    kernels::gather_rows<T>(ExecSpace(), to_R, y_RD, back_RD);
    expect_same(to_host(back_RD), x, "back_RD");
  }
}

}  // namespace
}  // namespace pleat::test
