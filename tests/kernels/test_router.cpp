// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference.hpp"
#include "pleat/base/error.hpp"
#include "pleat/kernels/router.hpp"

namespace pleat::test {
namespace {

using kernels::RouterOptions;
using kernels::Score;

/// \brief One combination of size and mode with its input.
struct Problem {
  RouterOptions options;
  Values logits, bias, real, dweight;
};

struct Routing {
  Values scores, index, weight;
};

Values softmax(const Values& x) {
  const double maximum = *std::max_element(x.begin(), x.end());
  Values result(x.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += result[i] = std::exp(x[i] - maximum);
  for (double& value : result) value /= sum;
  return result;
}

Values scores_of(Score score, const Values& logits) {
  if (score != Score::kSigmoid) return softmax(logits);
  Values result;
  for (const double logit : logits) result.push_back(1.0 / (1.0 + std::exp(-logit)));
  return result;
}

using Order = std::vector<std::size_t>;

/// \brief 0, 1, ... by falling key; stable, so ties go to the lower index.
Order falling(const Values& keys) {
  Order order(keys.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return keys[a] > keys[b]; });
  return order;
}

/// \brief Experts in the order of the choice, those of the best groups alone.
Order choice_order(const RouterOptions& options, const Values& keys,
                   const Values& biased) {
  const auto groups = static_cast<std::size_t>(options.groups);
  const std::size_t run = biased.size() / groups;
  Values sums;
  for (std::size_t g = 0; g < groups; ++g) {
    Values members(&biased[g * run], &biased[g * run] + run);
    std::sort(members.rbegin(), members.rend());
    sums.push_back(run > 1 ? members[0] + members[1] : members[0]);
  }
  Order best = falling(sums);
  best.resize(static_cast<std::size_t>(options.top_groups));
  Order order;
  for (const std::size_t e : falling(keys)) {
    if (std::find(best.begin(), best.end(), e / run) != best.end()) order.push_back(e);
  }
  return order;
}

Values weights_of(const RouterOptions& options, const Values& logits,
                  const Values& scores, const Order& order) {
  Values chosen_logits, weight;
  for (std::size_t k = 0; k < static_cast<std::size_t>(options.top_k); ++k) {
    chosen_logits.push_back(logits[order[k]]);
    weight.push_back(scores[order[k]]);
  }
  double sum = 0.0;
  for (const double value : weight) sum += value;
  if (options.score == Score::kSoftmaxAfterTopK) {
    weight = softmax(chosen_logits);
  } else if (options.normalize) {
    for (double& value : weight) value /= sum;
  }
  for (double& value : weight) value *= options.scale;
  return weight;
}

void route_token(const RouterOptions& options, const Values& logits, const Values& bias,
                 bool real, Routing& routing) {
  const Values scores = scores_of(options.score, logits);
  Values biased = scores;
  for (std::size_t e = 0; e < bias.size(); ++e) biased[e] += bias[e];
  const Order order = choice_order(options, bias.empty() ? logits : biased, biased);
  const Values weight = weights_of(options, logits, scores, order);
  routing.scores.insert(routing.scores.end(), scores.begin(), scores.end());
  for (std::size_t k = 0; k < weight.size(); ++k) {
    routing.index.push_back(real ? static_cast<double>(order[k]) : -1.0);
    routing.weight.push_back(real ? weight[k] : 0.0);
  }
}

Routing route_reference(const RouterOptions& options, const Values& logits,
                        const Values& bias, const Values& real) {
  Routing routing;
  const auto experts = static_cast<Index>(logits.size() / real.size());
  for (std::size_t t = 0; t < real.size(); ++t) {
    const auto row = logits.begin() + static_cast<Index>(t) * experts;
    route_token(options, Values(row, row + experts), bias, real[t] != 0.0, routing);
  }
  return routing;
}

/// \brief sum of dweight weight over the tokens whose logits are not the problem's: what
/// central differences need of the whole sum.
double changed_loss(const Problem& p, const Values& logits) {
  const std::size_t tokens = p.real.size();
  const std::size_t experts = logits.size() / tokens;
  const auto choices = static_cast<std::size_t>(p.options.top_k);
  double loss = 0.0;
  for (std::size_t t = 0; t < tokens; ++t) {
    const Values row(&logits[t * experts], &logits[t * experts] + experts);
    if (std::equal(row.begin(), row.end(), &p.logits[t * experts])) continue;
    Routing routing;
    route_token(p.options, row, p.bias, p.real[t] != 0.0, routing);
    const Values dweight(&p.dweight[t * choices], &p.dweight[t * choices] + choices);
    loss += dot(dweight, routing.weight);
  }
  return loss;
}

/// \brief router_forward, then router_backward of `dweight`; the gradient goes to the
/// second.
template <class A>
std::pair<Routing, Values> route(const RouterOptions& options, const Values& logits,
                                 const Values& bias, const Values& real,
                                 const Values& dweight) {
  const ExecSpace exec;
  const auto tokens = static_cast<Index>(real.size());
  const Index experts = static_cast<Index>(logits.size()) / tokens;
  const Index choices = options.top_k;
  const auto scores_TE = to_device<A>(Values(logits.size(), 9.0), tokens, experts);
  const auto index_TK =
      to_device<std::int32_t>(Values(dweight.size(), 9.0), tokens, choices);
  const auto weight_TK = to_device<A>(Values(dweight.size(), 9.0), tokens, choices);
  kernels::router_forward<A>(exec, options, to_device<A>(logits, tokens, experts),
                             to_device<A>(bias, bias.size()),
                             to_device<std::uint8_t>(real, tokens), scores_TE, index_TK,
                             weight_TK);
  const auto dlogits_TE = to_device<A>(Values(logits.size(), 9.0), tokens, experts);
  kernels::router_backward<A>(exec, options, scores_TE, index_TK, weight_TK,
                              to_device<A>(dweight, tokens, choices), dlogits_TE);
  return {{to_host(scores_TE), to_host(index_TK), to_host(weight_TK)},
          to_host(dlogits_TE)};
}

struct Sizes {
  Index tokens, experts, top_k, groups = 1, top_groups = 1;
};
constexpr Sizes kSizes[] = {{1, 1, 1},       {1, 8, 8},        {7, 3, 1},
                            {63, 8, 2},      {130, 1, 1},      {130, 8, 8},
                            {130, 60, 4},    {63, 128, 8},     {63, 16, 4, 4, 2},
                            {7, 8, 4, 2, 1}, {63, 8, 3, 8, 5}, {63, 64, 8, 8, 8}};

struct Mode {
  Score score;
  bool normalize;
  double scale;
  bool bias;
};
constexpr Mode kModes[] = {
    {Score::kSoftmaxBeforeTopK, false, 1.0, false},
    {Score::kSoftmaxBeforeTopK, true, 1.0, false},
    {Score::kSoftmaxAfterTopK, true, 1.0, false},
    {Score::kSoftmaxAfterTopK, false, 2.5, true},
    {Score::kSoftmaxBeforeTopK, false, 2.5, true},
    {Score::kSoftmaxBeforeTopK, true, 2.5, true},
    {Score::kSigmoid, false, 1.0, false},
    {Score::kSigmoid, true, 1.0, false},
    {Score::kSigmoid, false, 2.5, true},
    {Score::kSigmoid, true, 2.5, true},
};

/// \brief Every fifth token is padding.
Values padding(Index tokens) {
  Values real(static_cast<std::size_t>(tokens), 1.0);
  for (std::size_t t = 3; t < real.size(); t += 5) real[t] = 0.0;
  return real;
}

/// \brief All combinations.
std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const Sizes& s : kSizes) {
    for (const Mode& mode : kModes) {
      const RouterOptions options{s.top_k,  mode.score,   mode.normalize,
                                  s.groups, s.top_groups, mode.scale};
      all.push_back({options, random_values(s.tokens * s.experts, 1, 2.0),
                     mode.bias ? random_values(s.experts, 3, 0.3) : Values(),
                     padding(s.tokens), random_values(s.tokens * s.top_k, 2)});
    }
  }
  return all;
}

template <class A>
class Router : public testing::Test {};
TYPED_TEST_SUITE(Router, Scalars);

TYPED_TEST(Router, ForwardEqualsTheReference) {
  using A = TypeParam;
  for (const Problem& p : problems()) {
    const Routing expected = route_reference(p.options, p.logits, p.bias, p.real);
    const Routing actual = route<A>(p.options, p.logits, p.bias, p.real, p.dweight).first;
    expect_same(actual.index, expected.index, "index_TK");
    expect_close(actual.scores, expected.scores, tolerance<A>(), "scores_TE");
    expect_close(actual.weight, expected.weight, tolerance<A>(), "weight_TK");
  }
}

TYPED_TEST(Router, BackwardEqualsCentralDifferences) {
  using A = TypeParam;
  for (const Problem& p : problems()) {
    const Values exact =
        route<double>(p.options, p.logits, p.bias, p.real, p.dweight).second;
    expect_gradient([&](const Values& at) { return changed_loss(p, at); }, p.logits,
                    exact, "dlogits_TE", 60);
    const Values actual = route<A>(p.options, p.logits, p.bias, p.real, p.dweight).second;
    // Differences of numbers as large as dweight, times weights up to scale.
    const double bound = tolerance<A>() * p.options.scale * largest_magnitude(p.dweight);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      ASSERT_NEAR(actual[i], exact[i], bound) << "dlogits_TE: element " << i;
    }
  }
}

RouterOptions with(Index top_k, Score score, bool normalize) {
  return {top_k, score, normalize, 1, 1, 1.0};
}
constexpr Score kScores[] = {Score::kSoftmaxBeforeTopK, Score::kSoftmaxAfterTopK,
                             Score::kSigmoid};

TYPED_TEST(Router, TiesGoToTheLowerIndex) {
  using A = TypeParam;
  const Values logits = {1.0, 1.0, 1.0, 1.0, 0.0,   // all equal
                         0.0, 2.0, 1.0, 2.0, 1.0};  // pairs of equals
  for (const Score score : kScores) {
    for (const Values& bias : {Values(), Values(5, 0.25)}) {
      const Routing routing =
          route<A>(with(3, score, true), logits, bias, {1.0, 1.0}, Values(6)).first;
      expect_same(routing.index, {0.0, 1.0, 2.0, 1.0, 3.0, 2.0}, "index_TK");
    }
  }
}

// Scores of 1/2 throughout; the bias orders the experts and enters no weight.
TYPED_TEST(Router, BiasEntersTheChoiceAlone) {
  using A = TypeParam;
  const Values bias = {-0.5, 0.25, 0.0, 0.5};
  const Routing routing =
      route<A>(with(2, Score::kSigmoid, false), Values(4), bias, {1.0}, Values(2)).first;
  expect_same(routing.index, {3.0, 1.0}, "index_TK");
  expect_same(routing.weight, {0.5, 0.5}, "weight_TK");
  expect_same(routing.scores, Values(4, 0.5), "scores_TE");
}

// Groups {0, 1}, {2, 3}, {4, 5}: the first holds the best expert, the others have the
// larger sums, which are equal; of equal groups the lower is taken.
TYPED_TEST(Router, GroupsAreChosenByTheirTwoBest) {
  using A = TypeParam;
  RouterOptions options{2, Score::kSigmoid, false, 3, 1, 1.0};
  const Values bias = {0.5, -0.5, 0.25, 0.0, 0.0, 0.25};
  expect_same(route<A>(options, Values(6), bias, {1.0}, Values(2)).first.index,
              {2.0, 3.0}, "index_TK of one group");
  options.top_groups = 2;
  expect_same(route<A>(options, Values(6), bias, {1.0}, Values(2)).first.index,
              {2.0, 5.0}, "index_TK of two groups");
  options.top_groups = 3;
  expect_same(route<A>(options, Values(6), bias, {1.0}, Values(2)).first.index,
              {0.0, 2.0}, "index_TK of all groups");
}

// Padding may carry anything: nothing of it gets into indices, weights or gradients.
TYPED_TEST(Router, AllTokensPadding) {
  using A = TypeParam;
  for (const double logit : {0.5, std::nan("")}) {
    for (const Score score : kScores) {
      for (const bool normalize : {false, true}) {
        const auto [routing, dlogits] =
            route<A>(with(2, score, normalize), Values(7 * 4, logit), Values(), Values(7),
                     Values(14, std::nan("")));
        expect_same(routing.index, Values(14, -1.0), "index_TK");
        expect_same(routing.weight, Values(14), "weight_TK");
        expect_same(dlogits, Values(28), "dlogits_TE");
      }
    }
  }
}

TYPED_TEST(Router, InfinitelyUnlikelyExpertsComeLast) {
  using A = TypeParam;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const Score score : kScores) {
    const Routing routing =
        route<A>(with(3, score, true), {-kInfinity, 1.0, -kInfinity, 1.0}, Values(),
                 {1.0}, Values(3))
            .first;
    expect_same(routing.index, {1.0, 3.0, 0.0}, "index_TK");
    expect_same(routing.weight, {0.5, 0.5, 0.0}, "weight_TK");
  }
}

// A heavy logit that the bias keeps from the first place does not overflow.
TYPED_TEST(Router, BiasAgainstALargeLogit) {
  using A = TypeParam;
  const Routing routing = route<A>(with(2, Score::kSoftmaxAfterTopK, true), {0.0, 500.0},
                                   {2.0, 0.0}, {1.0}, Values(2))
                              .first;
  expect_same(routing.index, {0.0, 1.0}, "index_TK");
  EXPECT_NEAR(routing.weight[0], 0.0, 1.0e-30);
  EXPECT_EQ(routing.weight[1], 1.0);
}

TYPED_TEST(Router, NanGivesNanWeightsAndExpertsThatExist) {
  using A = TypeParam;
  const double nan = std::nan("");
  for (const Score score : kScores) {
    for (const bool normalize : {false, true}) {
      for (const bool in_bias : {false, true}) {
        const Values spoilt = {0.0, nan, 1.0};
        const Routing routing =
            route<A>(with(2, score, normalize), in_bias ? Values(3) : spoilt,
                     in_bias ? spoilt : Values(), {1.0}, Values(2))
                .first;
        expect_same(routing.index, {0.0, 1.0}, "index_TK");
        EXPECT_TRUE(std::isnan(routing.weight[0]) && std::isnan(routing.weight[1]));
      }
    }
  }
}

TEST(RouterForward, MoreChoicesThanExpertsAreRefused) {
  RouterOptions options = with(3, Score::kSigmoid, true);
  const auto attempt = [&](Index experts) {
    route<float>(options, Values(static_cast<std::size_t>(experts)), Values(), {1.0},
                 Values(3));
  };
  EXPECT_THROW(attempt(2), InternalError);
  attempt(4);
  options.groups = 2;
  EXPECT_THROW(attempt(4), InternalError);  // one group of two
  options.top_groups = 2;
  attempt(4);
  options.groups = 3;
  EXPECT_THROW(attempt(4), InternalError);  // no equal groups
}

}  // namespace
}  // namespace pleat::test
