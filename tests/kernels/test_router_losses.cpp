// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference.hpp"
#include "pleat/base/error.hpp"
#include "pleat/kernels/router.hpp"

namespace pleat::test {
namespace {

struct Case {
  Index tokens, experts, top_k, groups;
};
constexpr Case kCases[] = {{1, 1, 1, 1},    {1, 8, 8, 1},   {7, 3, 1, 7},
                           {63, 8, 2, 3},   {130, 1, 1, 2}, {130, 8, 2, 1},
                           {130, 60, 4, 2}, {260, 8, 8, 1}};

constexpr double kAuxiliary = 0.01;
constexpr double kZ = 0.001;

/// \brief Every fifth token and the whole last group (if there are several) are padding.
Values padding(const Case& c) {
  Values real(static_cast<std::size_t>(c.tokens), 1.0);
  for (std::size_t t = 3; t < real.size(); t += 5) real[t] = 0.0;
  if (c.groups > 1) {
    std::fill(real.end() - c.tokens / c.groups, real.end(), 0.0);
  }
  return real;
}

/// \brief Chosen experts of a token: index_TK need not be the top ones for the
/// statistics.
Values choices_of(const Case& c, const Values& real) {
  Values index;
  for (Index t = 0; t < c.tokens; ++t) {
    for (Index k = 0; k < c.top_k; ++k) {
      const bool routed = real[static_cast<std::size_t>(t)] != 0.0;
      index.push_back(routed ? static_cast<double>((t * t + k) % c.experts) : -1.0);
    }
  }
  return index;
}

struct Losses {
  double auxiliary = 0.0, z = 0.0;
};

/// \brief Both losses of one group of tokens.
Losses group_reference(const Case& c, Index first, const Values& logits,
                       const Values& index, const Values& real) {
  const auto experts = static_cast<std::size_t>(c.experts);
  Values counts(experts), probability(experts);
  double tokens = 0.0, z = 0.0;
  for (Index t = first; t < first + c.tokens / c.groups; ++t) {
    if (real[static_cast<std::size_t>(t)] == 0.0) continue;
    tokens += 1.0;
    const double* row = logits.data() + t * c.experts;
    double sum = 0.0;
    for (std::size_t e = 0; e < experts; ++e) sum += std::exp(row[e]);
    for (std::size_t e = 0; e < experts; ++e) probability[e] += std::exp(row[e]) / sum;
    z += std::log(sum) * std::log(sum);
    for (Index k = 0; k < c.top_k; ++k) {
      counts[static_cast<std::size_t>(
          index[static_cast<std::size_t>(t * c.top_k + k)])] += 1.0;
    }
  }
  if (tokens == 0.0) return {};
  Losses losses{0.0, kZ * z / tokens};
  for (std::size_t e = 0; e < experts; ++e) {
    losses.auxiliary += kAuxiliary * static_cast<double>(c.experts) *
                        (counts[e] / (tokens * static_cast<double>(c.top_k))) *
                        (probability[e] / tokens);
  }
  return losses;
}

Losses losses_reference(const Case& c, const Values& logits, const Values& index,
                        const Values& real) {
  Losses mean;
  for (Index g = 0; g < c.groups; ++g) {
    const Losses group =
        group_reference(c, g * (c.tokens / c.groups), logits, index, real);
    mean.auxiliary += group.auxiliary / static_cast<double>(c.groups);
    mean.z += group.z / static_cast<double>(c.groups);
  }
  return mean;
}

struct Result {
  Losses losses;
  Values counts, tokens, probability_sum, dlogits;
};

/// \brief Statistics, losses and twice their gradient, each added to 1.
template <class A>
Result run(const ExecSpace& exec, const Case& c, const Values& logits,
           const Values& index, const Values& real) {
  Arena scratch("test");
  const auto logits_TE = to_device<A>(logits, c.tokens, c.experts);
  const auto real_T = to_device<std::uint8_t>(real, c.tokens);
  const auto scores_TE = to_device<A>(Values(logits.size()), c.tokens, c.experts);
  const auto unused_TK = to_device<std::int32_t>(Values(index.size()), c.tokens, c.top_k);
  const auto weight_TK = to_device<A>(Values(index.size()), c.tokens, c.top_k);
  kernels::router_forward<A>(exec, {c.top_k, false, false}, logits_TE, real_T, scores_TE,
                             unused_TK, weight_TK);
  const std::size_t groups = static_cast<std::size_t>(c.groups);
  const auto size = groups * static_cast<std::size_t>(c.experts);
  const kernels::RouterStatistics<A> statistics{
      to_device<double>(Values(size, 9.0), c.groups, c.experts),
      to_device<double>(Values(size, 9.0), c.groups, c.experts),
      to_device<double>(Values(groups, 9.0), c.groups),
      to_device<double>(Values(groups, 9.0), c.groups)};
  kernels::router_statistics<A>(exec, logits_TE, scores_TE,
                                to_device<std::int32_t>(index, c.tokens, c.top_k), real_T,
                                scratch, statistics);
  const kernels::RouterLossOptions options{kAuxiliary, kZ, c.top_k};
  const auto losses = to_device<double>(Values{1.0, 1.0}, 2);
  kernels::router_losses<A>(exec, options, statistics, losses);
  const auto dlogits_TE = to_device<A>(Values(logits.size(), 1.0), c.tokens, c.experts);
  kernels::router_losses_backward<A>(exec, options, 2.0, logits_TE, scores_TE, real_T,
                                     statistics, dlogits_TE);
  const Values sums = to_host(losses);
  Result result{{sums[0] - 1.0, sums[1] - 1.0},
                to_host(statistics.counts_GE),
                to_host(statistics.tokens_G),
                to_host(statistics.probability_sum_GE),
                to_host(dlogits_TE)};
  for (double& value : result.dlogits) value -= 1.0;
  return result;
}

template <class A>
class RouterLosses : public testing::Test {};
TYPED_TEST_SUITE(RouterLosses, Scalars);

TYPED_TEST(RouterLosses, EqualTheReferenceAndCentralDifferences) {
  using A = TypeParam;
  for (const Case& c : kCases) {
    const Values logits = random_values(c.tokens * c.experts, 1);
    const Values real = padding(c);
    const Values index = choices_of(c, real);
    const Losses expected = losses_reference(c, logits, index, real);
    const Result actual = run<A>(ExecSpace(), c, logits, index, real);
    EXPECT_NEAR(actual.losses.auxiliary, expected.auxiliary, tolerance<A>());
    EXPECT_NEAR(actual.losses.z, expected.z, tolerance<A>());
    const Result exact = run<double>(ExecSpace(), c, logits, index, real);
    expect_gradient(
        [&](const Values& at) {
          const Losses losses = losses_reference(c, at, index, real);
          return 2.0 * (losses.auxiliary + losses.z);
        },
        logits, exact.dlogits, "dlogits_TE", 60);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      EXPECT_NEAR(actual.dlogits[i], exact.dlogits[i], tolerance<A>());
    }
    const Result alone = run<A>(one_thread(), c, logits, index, real);
    expect_same(alone.probability_sum, actual.probability_sum, "sums with one thread");
    expect_same(alone.dlogits, actual.dlogits, "dlogits_TE with one thread");
  }
}

TEST(RouterStatistics, PaddingCountsNowhere) {
  const Case c{63, 8, 2, 3};
  const Values logits = random_values(63 * 8, 1);
  const Values real = padding(c);
  const Result result = run<double>(ExecSpace(), c, logits, choices_of(c, real), real);
  for (std::size_t g = 0; g < 3; ++g) {
    double tokens = 0.0, pairs = 0.0, probability = 0.0;
    for (std::size_t t = g * 21; t < (g + 1) * 21; ++t) tokens += real[t];
    for (std::size_t e = 0; e < 8; ++e) {
      pairs += result.counts[g * 8 + e];
      probability += result.probability_sum[g * 8 + e];
    }
    EXPECT_EQ(result.tokens[g], tokens);
    EXPECT_EQ(pairs, 2.0 * tokens);
    EXPECT_NEAR(probability, tokens, 1.0e-12);
  }
}

TEST(RouterStatistics, AllTokensPaddingGivesZeros) {
  const Case c{7, 4, 2, 1};
  const Values real(7), index(14, -1.0);
  const Result result = run<double>(ExecSpace(), c, random_values(28, 1), index, real);
  EXPECT_EQ(result.losses.auxiliary, 0.0);
  EXPECT_EQ(result.losses.z, 0.0);
  expect_same(result.dlogits, Values(28), "dlogits_TE");
}

TEST(RouterStatistics, BalancedRoutingHasAuxiliaryLossOne) {
  // f = P = 1/E gives E sum_e f_e P_e = 1, times the coefficient.
  const Case c{64, 8, 1, 1};
  Values index;
  for (int t = 0; t < 64; ++t) index.push_back(t % 8);
  const Result result =
      run<double>(ExecSpace(), c, Values(64 * 8, 0.5), index, Values(64, 1.0));
  EXPECT_NEAR(result.losses.auxiliary, kAuxiliary, 1.0e-15);
  EXPECT_NEAR(result.losses.z, kZ * std::pow(0.5 + std::log(8.0), 2), 1.0e-15);
}

}  // namespace
}  // namespace pleat::test
