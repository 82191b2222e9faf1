// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>

#include "kernels/reference.hpp"
#include "pleat/base/error.hpp"
#include "pleat/kernels/capacity.hpp"

namespace pleat::test {
namespace {

using kernels::CapacityOptions;
using kernels::RowGroups;

struct Case {
  CapacityOptions options;
  RowGroups rows;
  Index tokens, top_k;
};

/// \brief Sorts the pairs of each group and expert by falling weight, row and choice.
Values reference(const Case& c, const Values& index, const Values& weight) {
  Values sent(index.size(), -1.0);
  for (Index group = 0; group < c.rows.groups; ++group) {
    const Index begin = std::max<Index>(group * c.rows.rows - c.rows.first_row, 0);
    const Index end = std::min((group + 1) * c.rows.rows - c.rows.first_row, c.tokens);
    for (Index e = 0; e < c.options.experts; ++e) {
      std::vector<std::tuple<double, Index>> pairs;
      for (Index pair = begin * c.top_k; pair < end * c.top_k; ++pair) {
        const auto i = static_cast<std::size_t>(pair);
        if (index[i] != static_cast<double>(e)) continue;
        pairs.emplace_back(c.options.by_weight ? -weight[i] : 0.0, pair);
      }
      std::sort(pairs.begin(), pairs.end());
      const double exact = static_cast<double>((end - begin) * c.top_k) /
                           static_cast<double>(c.options.experts) * c.options.factor;
      const auto capacity = static_cast<std::size_t>(std::ceil(exact));
      pairs.resize(std::min(pairs.size(), capacity));
      for (const auto& [key, pair] : pairs) {
        sent[static_cast<std::size_t>(pair)] = static_cast<double>(e);
      }
    }
  }
  return sent;
}

template <class A>
Values mark(const ExecSpace& exec, const Case& c, const Values& index,
            const Values& weight) {
  Arena scratch("test");
  const auto sent_NK =
      to_device<std::int32_t>(Values(index.size(), 9.0), c.tokens, c.top_k);
  const auto weight_NK =
      c.options.by_weight ? to_device<A>(weight, c.tokens, c.top_k) : DeviceView<A, 2>();
  kernels::mark_over_capacity<A>(exec, c.options, c.rows,
                                 to_device<std::int32_t>(index, c.tokens, c.top_k),
                                 weight_NK, scratch, sent_NK);
  return to_host(sent_NK);
}

/// \brief Distinct experts per token, the low ones more often; every seventh token is
/// padding.
Values random_choices(const Case& c) {
  const CounterRandom random(5, 0);
  Values index;
  for (Index t = 0; t < c.tokens; ++t) {
    std::vector<std::pair<double, Index>> order;
    for (Index e = 0; e < c.options.experts; ++e) {
      const auto counter = static_cast<std::uint64_t>(t * c.options.experts + e);
      order.emplace_back(random.normal(counter) + static_cast<double>(e) * 0.2, e);
    }
    std::sort(order.begin(), order.end());
    for (Index k = 0; k < c.top_k; ++k) {
      const Index e = order[static_cast<std::size_t>(k)].second;
      index.push_back(t % 7 == 6 ? -1.0 : static_cast<double>(e));
    }
  }
  return index;
}

/// \brief Multiples of 1 / levels in [0, 1], so that few levels give many ties.
Values random_weights(std::size_t count, double levels) {
  Values weight = random_values(static_cast<Index>(count), 6);
  for (double& value : weight) {
    value = std::min(1.0, std::floor(std::abs(value) / 2.0 * levels) / levels);
  }
  return weight;
}

/// \brief To so many significant bits: weights that the kernel tells apart.
double rounded(double value, int bits) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)), exponent - bits);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const std::tuple<RowGroups, Index> rows[] = {
      {{1, 1, 0}, 1},      {{1, 100, 0}, 100},
      {{4, 64, 0}, 256},   {{4, 64, 40}, 100},  // parts of three groups
      {{4, 64, 70}, 30},                        // a part of one
      {{3, 1000, 0}, 3000}};
  for (const auto& [groups, tokens] : rows) {
    for (const double factor : {0.25, 1.0, 1.3, 100.0}) {
      for (const bool by_weight : {false, true}) {
        all.push_back({{8, factor, by_weight}, groups, tokens, 2});
        all.push_back({{5, factor, by_weight}, groups, tokens, 5});
        all.push_back({{1, factor, by_weight}, groups, tokens, 1});
      }
    }
  }
  return all;
}

template <class A>
class Capacity : public testing::Test {};
TYPED_TEST_SUITE(Capacity, Scalars);

TYPED_TEST(Capacity, EqualsASort) {
  using A = TypeParam;
  for (const Case& c : cases()) {
    const Values index = random_choices(c);
    for (const double levels : {1.0, 4.0, 1.0e6}) {
      Values weight = random_weights(index.size(), levels);
      for (double& value : weight) value = rounded(value, sizeof(A) == 4 ? 17 : 33);
      const Values expected = reference(c, index, weight);
      expect_same(mark<A>(ExecSpace(), c, index, weight), expected, "sent_NK");
      expect_same(mark<A>(one_thread(), c, index, weight), expected,
                  "sent_NK with one thread");
    }
  }
}

// Four tokens, two experts, capacity ceil(4 / 2) = 2 pairs each.
TYPED_TEST(Capacity, HandWorked) {
  using A = TypeParam;
  const Values index = {0.0, 0.0, 0.0, 1.0};
  const Values weight = {0.25, 0.5, 0.25, 1.0};
  Case c{{2, 1.0, true}, {1, 4, 0}, 4, 1};
  expect_same(mark<A>(ExecSpace(), c, index, weight), {0.0, 0.0, -1.0, 1.0}, "weight");
  expect_same(mark<A>(ExecSpace(), c, index, {0.25, 0.5, 0.375, 1.0}),
              {-1.0, 0.0, 0.0, 1.0}, "other weights");
  c.options.by_weight = false;
  expect_same(mark<A>(ExecSpace(), c, index, weight), {0.0, 0.0, -1.0, 1.0}, "position");
  c.rows = {2, 2, 0};  // capacity 1 of each group
  expect_same(mark<A>(ExecSpace(), c, index, weight), {0.0, -1.0, 0.0, 1.0}, "groups");
}

/// What only rounding tells apart goes by position, on every mapping.
TYPED_TEST(Capacity, WeightsThatDifferByRoundingAreTies) {
  using A = TypeParam;
  const Case c{{1, 0.5, true}, {1, 4, 0}, 4, 1};
  const double up = static_cast<double>(std::nextafter(A(0.3), A(1)));
  const double down = static_cast<double>(std::nextafter(A(0.3), A(0)));
  for (const Values& weight : {Values{0.3, 0.3, 0.3, 0.3}, Values{down, 0.3, up, up},
                               Values{up, down, 0.3, up}, Values{down, down, up, 0.3}}) {
    expect_same(mark<A>(ExecSpace(), c, {0.0, 0.0, 0.0, 0.0}, weight), {0.0, 0.0, -1.0, -1.0},
                "ties");
  }
}

TYPED_TEST(Capacity, NothingToRoute) {
  using A = TypeParam;
  Case c{{4, 1.0, true}, {2, 8, 0}, 16, 2};
  expect_same(mark<A>(ExecSpace(), c, Values(32, -1.0), Values(32)), Values(32, -1.0),
              "padding alone");
  c.tokens = 0;
  expect_same(mark<A>(ExecSpace(), c, {}, {}), {}, "no rows");
}

TEST(ExpertCapacity, IsRoundedUp) {
  EXPECT_EQ(kernels::expert_capacity({8, 1.0, true}, 64, 2), 16);
  EXPECT_EQ(kernels::expert_capacity({8, 1.25, true}, 63, 2), 20);  // 19.6875
  EXPECT_EQ(kernels::expert_capacity({64, 1.0, true}, 1, 1), 1);
  EXPECT_EQ(kernels::expert_capacity({64, 1.0, true}, 0, 1), 0);
}

TEST(CapacityArguments, AreChecked) {
  const Case c{{2, 0.0, true}, {1, 4, 0}, 4, 1};
  EXPECT_THROW(mark<float>(ExecSpace(), c, Values(4), Values(4)), InternalError);
  const Case beyond{{2, 1.0, true}, {1, 3, 0}, 4, 1};
  EXPECT_THROW(mark<float>(ExecSpace(), beyond, Values(4), Values(4)), InternalError);
}

}  // namespace
}  // namespace pleat::test
