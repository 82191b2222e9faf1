// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference.hpp"
#include "pleat/base/error.hpp"
#include "pleat/kernels/router.hpp"

namespace pleat::test {
namespace {

using kernels::RouterOptions;

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

/// \brief One token: sort all experts by falling logit (stable: ties to the lower index).
void route_token(const RouterOptions& options, const Values& logits, bool real,
                 Routing& routing) {
  const Values scores = softmax(logits);
  routing.scores.insert(routing.scores.end(), scores.begin(), scores.end());
  std::vector<std::size_t> order(logits.size());
  for (std::size_t e = 0; e < order.size(); ++e) order[e] = e;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  const auto choices = static_cast<std::size_t>(options.top_k);
  Values chosen_logits, weight;
  for (std::size_t k = 0; k < choices; ++k) {
    chosen_logits.push_back(logits[order[k]]);
    weight.push_back(scores[order[k]]);
  }
  double sum = 0.0;
  for (const double value : weight) sum += value;
  if (options.softmax_after_top_k) {
    weight = softmax(chosen_logits);
  } else if (options.normalize) {
    for (double& value : weight) value /= sum;
  }
  for (std::size_t k = 0; k < choices; ++k) {
    routing.index.push_back(real ? static_cast<double>(order[k]) : -1.0);
    routing.weight.push_back(real ? weight[k] : 0.0);
  }
}

Routing route_reference(const RouterOptions& options, const Values& logits,
                        const Values& real) {
  Routing routing;
  const auto experts = static_cast<Index>(logits.size() / real.size());
  for (std::size_t t = 0; t < real.size(); ++t) {
    const auto row = logits.begin() + static_cast<Index>(t) * experts;
    route_token(options, Values(row, row + experts), real[t] != 0.0, routing);
  }
  return routing;
}

/// \brief router_forward, then router_backward of `dweight`; the gradient goes to the
/// second.
template <class A>
std::pair<Routing, Values> route(const RouterOptions& options, const Values& logits,
                                 const Values& real, const Values& dweight) {
  const ExecSpace exec;
  const auto tokens = static_cast<Index>(real.size());
  const Index experts = static_cast<Index>(logits.size()) / tokens;
  const Index choices = options.top_k;
  const auto scores_TE = to_device<A>(Values(logits.size(), 9.0), tokens, experts);
  const auto index_TK =
      to_device<std::int32_t>(Values(dweight.size(), 9.0), tokens, choices);
  const auto weight_TK = to_device<A>(Values(dweight.size(), 9.0), tokens, choices);
  kernels::router_forward<A>(exec, options, to_device<A>(logits, tokens, experts),
                             to_device<std::uint8_t>(real, tokens), scores_TE, index_TK,
                             weight_TK);
  const auto dlogits_TE = to_device<A>(Values(logits.size(), 9.0), tokens, experts);
  kernels::router_backward<A>(exec, options, scores_TE, index_TK, weight_TK,
                              to_device<A>(dweight, tokens, choices), dlogits_TE);
  return {{to_host(scores_TE), to_host(index_TK), to_host(weight_TK)},
          to_host(dlogits_TE)};
}

struct Sizes {
  Index tokens, experts, top_k;
};
constexpr Sizes kSizes[] = {{1, 1, 1},   {1, 8, 8},   {7, 3, 1},    {63, 8, 2},
                            {130, 1, 1}, {130, 8, 8}, {130, 60, 4}, {63, 128, 8}};
constexpr RouterOptions kModes[] = {{1, false, false}, {1, false, true}, {1, true, true}};

/// \brief Every fifth token is padding.
Values padding(Index tokens) {
  Values real(static_cast<std::size_t>(tokens), 1.0);
  for (std::size_t t = 3; t < real.size(); t += 5) real[t] = 0.0;
  return real;
}

template <class A>
class Router : public testing::Test {};
TYPED_TEST_SUITE(Router, Scalars);

TYPED_TEST(Router, ForwardEqualsTheReference) {
  using A = TypeParam;
  for (const Sizes& s : kSizes) {
    for (RouterOptions options : kModes) {
      options.top_k = s.top_k;
      const Values logits = random_values(s.tokens * s.experts, 1, 2.0);
      const Values real = padding(s.tokens);
      const Routing expected = route_reference(options, logits, real);
      const Routing actual =
          route<A>(options, logits, real, Values(s.tokens * s.top_k)).first;
      expect_same(actual.index, expected.index, "index_TK");
      expect_close(actual.scores, expected.scores, tolerance<A>(), "scores_TE");
      expect_close(actual.weight, expected.weight, tolerance<A>(), "weight_TK");
    }
  }
}

TYPED_TEST(Router, BackwardEqualsCentralDifferences) {
  using A = TypeParam;
  for (const Sizes& s : kSizes) {
    for (RouterOptions options : kModes) {
      options.top_k = s.top_k;
      const Values logits = random_values(s.tokens * s.experts, 1, 2.0);
      const Values real = padding(s.tokens);
      const Values dweight = random_values(s.tokens * s.top_k, 2);
      const Values exact = route<double>(options, logits, real, dweight).second;
      expect_gradient(
          [&](const Values& at) {
            return dot(dweight, route_reference(options, at, real).weight);
          },
          logits, exact, "dlogits_TE", 60);
      expect_close(route<A>(options, logits, real, dweight).second, exact, tolerance<A>(),
                   "dlogits_TE");
    }
  }
}

TYPED_TEST(Router, TiesGoToTheLowerIndex) {
  using A = TypeParam;
  const RouterOptions options{3, false, true};
  const Values logits = {1.0, 1.0, 1.0, 1.0, 0.0,   // all equal
                         0.0, 2.0, 1.0, 2.0, 1.0};  // pairs of equals
  const Routing routing = route<A>(options, logits, {1.0, 1.0}, Values(6)).first;
  expect_same(routing.index, {0.0, 1.0, 2.0, 1.0, 3.0, 2.0}, "index_TK");
}

// Padding may carry anything: nothing of it gets into indices, weights or gradients.
TYPED_TEST(Router, AllTokensPadding) {
  using A = TypeParam;
  for (const double logit : {0.5, std::nan("")}) {
    for (const RouterOptions options :
         {RouterOptions{2, false, false}, {2, false, true}}) {
      const auto [routing, dlogits] =
          route<A>(options, Values(7 * 4, logit), Values(7), Values(14, std::nan("")));
      expect_same(routing.index, Values(14, -1.0), "index_TK");
      expect_same(routing.weight, Values(14), "weight_TK");
      expect_same(dlogits, Values(28), "dlogits_TE");
    }
  }
}

TYPED_TEST(Router, InfinitelyUnlikelyExpertsComeLast) {
  using A = TypeParam;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Routing routing =
      route<A>({3, true, true}, {-kInfinity, 1.0, -kInfinity, 1.0}, {1.0}, Values(3))
          .first;
  expect_same(routing.index, {1.0, 3.0, 0.0}, "index_TK");
  expect_same(routing.weight, {0.5, 0.5, 0.0}, "weight_TK");
}

TYPED_TEST(Router, NanGivesNanWeightsAndExpertsThatExist) {
  using A = TypeParam;
  for (const RouterOptions options : {RouterOptions{2, false, false}, {2, true, true}}) {
    const Routing routing =
        route<A>(options, {0.0, std::nan(""), 1.0}, {1.0}, Values(2)).first;
    expect_same(routing.index, {0.0, 1.0}, "index_TK");
    EXPECT_TRUE(std::isnan(routing.weight[0]) && std::isnan(routing.weight[1]));
  }
}

TEST(RouterForward, MoreChoicesThanExpertsAreRefused) {
  EXPECT_THROW(route<float>({3, false, true}, {0.0, 1.0}, {1.0}, Values(3)),
               InternalError);
}

}  // namespace
}  // namespace pleat::test
