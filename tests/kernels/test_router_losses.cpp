// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference.hpp"
#include "pleat/base/copy.hpp"
#include "pleat/base/error.hpp"
#include "pleat/kernels/router.hpp"

namespace pleat::test {
namespace {

using kernels::Score;

struct Case {
  Index tokens, experts, top_k, groups;
  Score score = Score::kSoftmaxBeforeTopK;
};
constexpr Case kCases[] = {{1, 1, 1, 1},    {1, 8, 8, 1},   {7, 3, 1, 7},
                           {63, 8, 2, 3},   {130, 1, 1, 2}, {130, 8, 2, 1},
                           {130, 60, 4, 2}, {260, 8, 8, 1}};
constexpr Score kScores[] = {Score::kSoftmaxBeforeTopK, Score::kSoftmaxAfterTopK,
                             Score::kSigmoid};

constexpr double kAuxiliary = 1.0;
constexpr double kZ = 0.1;

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

/// \brief Share of each expert in a token's scores.
Values probabilities(Score score, const double* logits, std::size_t experts) {
  Values share(experts);
  double sum = 0.0;
  for (std::size_t e = 0; e < experts; ++e) {
    const double power = std::exp(logits[e]);
    share[e] = score == Score::kSigmoid ? power / (1.0 + power) : power;
    sum += share[e];
  }
  for (double& value : share) value /= sum;
  return share;
}

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
    const Values share = probabilities(c.score, row, experts);
    double sum = 0.0;
    for (std::size_t e = 0; e < experts; ++e) {
      sum += std::exp(row[e]);
      probability[e] += share[e];
    }
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

/// \brief Rows begin .. end - 1 of a tensor with `columns` columns.
Values rows_of(const Values& values, Index begin, Index end, Index columns) {
  return {values.begin() + begin * columns, values.begin() + end * columns};
}

/// \brief A part of the rows, as one rank holds it.
template <class A>
struct Part {
  kernels::RowGroups rows;
  DeviceView<A, 2> logits_TE, scores_TE;
  DeviceView<std::uint8_t, 1> real_T;
  kernels::RouterStatistics<A> statistics;
};

/// \brief Rows begin .. end - 1 and their statistics.
template <class A>
Part<A> make_part(const ExecSpace& exec, const Case& c, Index begin, Index end,
                  const Values& logits, const Values& index, const Values& real,
                  Arena& arena) {
  const Index tokens = end - begin;
  const auto size = static_cast<std::size_t>(tokens * c.experts);
  const auto pairs = static_cast<std::size_t>(tokens * c.top_k);
  Part<A> part{{c.groups, c.tokens / c.groups, begin},
               to_device<A>(rows_of(logits, begin, end, c.experts), tokens, c.experts),
               to_device<A>(Values(size), tokens, c.experts),
               to_device<std::uint8_t>(rows_of(real, begin, end, 1), tokens),
               kernels::take_router_statistics<A>(arena, c.groups, c.experts)};
  kernels::router_forward<A>(exec, {c.top_k, c.score}, part.logits_TE, {}, part.real_T,
                             part.scores_TE,
                             to_device<std::int32_t>(Values(pairs), tokens, c.top_k),
                             to_device<A>(Values(pairs), tokens, c.top_k));
  fill_tensor(part.statistics.all, 9.0);
  const auto index_TK =
      to_device<std::int32_t>(rows_of(index, begin, end, c.top_k), tokens, c.top_k);
  Arena scratch("scratch");
  kernels::router_statistics<A>(exec, c.score, part.rows, part.logits_TE, part.scores_TE,
                                index_TK, part.real_T, scratch, part.statistics);
  Kokkos::fence();
  return part;
}

/// \brief The gradient of both losses, times 2, added to 1.
template <class A>
Values gradient_of(const ExecSpace& exec, const Case& c, const Part<A>& part) {
  const kernels::RouterLossOptions options{kAuxiliary, kZ, c.top_k, c.score};
  const auto dlogits_TE =
      to_device<A>(Values(part.logits_TE.size(), 1.0), part.logits_TE.extent(0),
                   part.logits_TE.extent(1));
  kernels::router_losses_backward<A>(exec, options, 2.0, part.rows, part.logits_TE,
                                     part.scores_TE, part.real_T, part.statistics,
                                     dlogits_TE);
  Values dlogits = to_host(dlogits_TE);
  for (double& value : dlogits) value -= 1.0;
  return dlogits;
}

/// \brief Both losses, added to 1.
template <class A>
Losses losses_of(const ExecSpace& exec, const Case& c, const Part<A>& part) {
  const kernels::RouterLossOptions options{kAuxiliary, kZ, c.top_k, c.score};
  const auto losses = to_device<double>(Values{1.0, 1.0}, 2);
  kernels::router_losses<A>(exec, options, part.statistics, losses);
  const Values sums = to_host(losses);
  return {sums[0] - 1.0, sums[1] - 1.0};
}

/// \brief Statistics, losses and twice their gradient, of ranks that hold the rows
/// between two cuts each and add up their statistics.
template <class A>
Result run(const ExecSpace& exec, const Case& c, const Values& logits,
           const Values& index, const Values& real, std::vector<Index> cuts = {}) {
  Arena arena("test");
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(c.tokens);
  std::vector<Part<A>> parts;
  for (std::size_t p = 0; p + 1 < cuts.size(); ++p) {
    parts.push_back(
        make_part<A>(exec, c, cuts[p], cuts[p + 1], logits, index, real, arena));
  }
  Values sum = to_host(parts[0].statistics.all);
  for (std::size_t p = 1; p < parts.size(); ++p) {
    const Values other = to_host(parts[p].statistics.all);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  }
  Result result;
  for (const Part<A>& part : parts) {
    copy_tensor(part.statistics.all, to_device<double>(sum, sum.size()));
    const Values dlogits = gradient_of<A>(exec, c, part);
    result.dlogits.insert(result.dlogits.end(), dlogits.begin(), dlogits.end());
  }
  const kernels::RouterStatistics<A>& statistics = parts.back().statistics;
  result.losses = losses_of<A>(exec, c, parts.back());
  result.counts = to_host(statistics.counts_GE);
  result.tokens = to_host(statistics.tokens_G);
  result.probability_sum = to_host(statistics.probability_sum_GE);
  return result;
}

template <class A>
class RouterLosses : public testing::Test {};
TYPED_TEST_SUITE(RouterLosses, Scalars);

/// \brief The cases with each score.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Score score : kScores) {
    for (Case c : kCases) {
      c.score = score;
      all.push_back(c);
    }
  }
  return all;
}

TYPED_TEST(RouterLosses, EqualTheReferenceAndCentralDifferences) {
  using A = TypeParam;
  for (const Case& c : cases()) {
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
        logits, exact.dlogits, "dlogits_TE", 24);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      EXPECT_NEAR(actual.dlogits[i], exact.dlogits[i], tolerance<A>());
    }
    const Result alone = run<A>(one_thread(), c, logits, index, real);
    expect_same(alone.probability_sum, actual.probability_sum, "sums with one thread");
    expect_same(alone.dlogits, actual.dlogits, "dlogits_TE with one thread");
  }
}

// Ranks that hold parts of groups, several of them, or no rows at all.
TYPED_TEST(RouterLosses, OfSeveralRanksEqualThoseOfOne) {
  using A = TypeParam;
  for (const Case& c : cases()) {
    const Values logits = random_values(c.tokens * c.experts, 1);
    const Values real = padding(c);
    const Values index = choices_of(c, real);
    const Result one = run<A>(ExecSpace(), c, logits, index, real);
    const Index half = c.tokens / 2;
    for (const std::vector<Index>& cuts :
         {std::vector<Index>{half}, {0, half, half}, {1, c.tokens - c.tokens / 5}}) {
      const Result several = run<A>(ExecSpace(), c, logits, index, real, cuts);
      expect_same(several.counts, one.counts, "counts_GE");
      expect_same(several.tokens, one.tokens, "tokens_G");
      expect_close(several.probability_sum, one.probability_sum, 1.0e-14,
                   "probability_sum_GE");
      EXPECT_NEAR(several.losses.auxiliary, one.losses.auxiliary, 1.0e-14);
      EXPECT_NEAR(several.losses.z, one.losses.z, 1.0e-14);
      ASSERT_EQ(several.dlogits.size(), one.dlogits.size());
      for (std::size_t i = 0; i < one.dlogits.size(); ++i) {
        EXPECT_NEAR(several.dlogits[i], one.dlogits[i], tolerance<A>());
      }
    }
  }
}

TEST(RouterStatistics, LieInOneBufferInTheirOrder) {
  Arena arena("test");
  const auto statistics = kernels::take_router_statistics<double>(arena, 3, 5);
  const double* all = statistics.all.data();
  EXPECT_EQ(statistics.all.size(), 36U);
  EXPECT_EQ(statistics.counts_GE.data(), all);
  EXPECT_EQ(statistics.probability_sum_GE.data(), all + 15);
  EXPECT_EQ(statistics.z_sum_G.data(), all + 30);
  EXPECT_EQ(statistics.tokens_G.data(), all + 33);
}

TEST(RouterStatistics, RowsBeyondTheGroupsAreRefused) {
  Arena arena("test");
  const Case c{6, 4, 2, 1};
  const Values index(12), real(6, 1.0), logits(24);
  auto part = make_part<double>(ExecSpace(), c, 0, 6, logits, index, real, arena);
  gradient_of<double>(ExecSpace(), c, part);
  part.rows.first_row = 1;
  EXPECT_THROW(gradient_of<double>(ExecSpace(), c, part), InternalError);
}

// Sums of many groups of which a rank holds few, with more than one block each.
TEST(RouterStatistics, GroupsOfOtherRanksAreZero) {
  Case c{300, 2, 1, 3};
  const Values logits = random_values(600, 1), index(300), real(300, 1.0);
  Arena arena("test");
  const auto part =
      make_part<double>(ExecSpace(), c, 110, 190, logits, index, real, arena);
  expect_same(to_host(part.statistics.tokens_G), {0.0, 80.0, 0.0}, "tokens_G");
  expect_same(to_host(part.statistics.counts_GE), {0.0, 0.0, 80.0, 0.0, 0.0, 0.0},
              "counts_GE");
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
  EXPECT_NEAR(result.losses.auxiliary, kAuxiliary, 1.0e-14);
  EXPECT_NEAR(result.losses.z, kZ * std::pow(0.5 + std::log(8.0), 2), 1.0e-14);
}

}  // namespace
}  // namespace pleat::test
