// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/router.hpp"

#include "router_choice.hpp"
#include "router_scores.hpp"
#include "rows.hpp"

namespace pleat::kernels {

using detail::check_extents;
using detail::Index;
using detail::RowTeam;

namespace {

/// \brief Whether the weights are the softmax over the chosen logits alone: so by
/// definition after top-k, and also before it once they are divided by their sum.
bool softmax_of_chosen(const RouterOptions& options) {
  return options.score == Score::kSoftmaxAfterTopK ||
         (options.score == Score::kSoftmaxBeforeTopK && options.normalize);
}

void check_options(const char* label, const RouterOptions& options, Index experts) {
  PLEAT_ASSERT(1 <= options.groups && options.groups <= detail::kMaximalGroups &&
                   experts % options.groups == 0,
               "{}: {} experts in {} groups", label, experts, options.groups);
  PLEAT_ASSERT(1 <= options.top_groups && options.top_groups <= options.groups,
               "{}: top {} of {} groups", label, options.top_groups, options.groups);
  const Index allowed = options.top_groups * (experts / options.groups);
  PLEAT_ASSERT(1 <= options.top_k && options.top_k <= allowed, "{}: top {} of {} experts",
               label, options.top_k, allowed);
  PLEAT_ASSERT(options.scale > 0.0, "{}: scale {}", label, options.scale);
}

}  // namespace

template <class A>
void router_forward(const ExecSpace& exec, const RouterOptions& options,
                    const DeviceView<const A, 2>& logits_TE,
                    const DeviceView<const A, 1>& bias_E,
                    const DeviceView<const std::uint8_t, 1>& real_T,
                    const DeviceView<A, 2>& scores_TE,
                    const DeviceView<std::int32_t, 2>& index_TK,
                    const DeviceView<A, 2>& weight_TK) {
  constexpr const char* kLabel = "pleat::kernels::router_forward";
  const Index tokens = logits_TE.extent(0);
  const Index experts = logits_TE.extent(1);
  const Index choices = options.top_k;
  check_options(kLabel, options, experts);
  if (bias_E.extent(0) != 0) check_extents(kLabel, "bias_E", bias_E, experts);
  check_extents(kLabel, "real_T", real_T, tokens);
  check_extents(kLabel, "scores_TE", scores_TE, tokens, experts);
  check_extents(kLabel, "index_TK", index_TK, tokens, choices);
  check_extents(kLabel, "weight_TK", weight_TK, tokens, choices);
  const A* bias = bias_E.extent(0) != 0 ? bias_E.data() : nullptr;
  const bool of_chosen = softmax_of_chosen(options);
  const bool sigmoid = options.score == Score::kSigmoid;
  const bool divided = of_chosen || (sigmoid && options.normalize);
  const A smallest_sum = sigmoid ? detail::kSmallestSum<A> : A(0);
  const A scale = static_cast<A>(options.scale);
  const Index groups = options.groups;
  const Index top_groups = options.top_groups;
  detail::for_each_row(
      kLabel, exec, tokens, experts, KOKKOS_LAMBDA(const RowTeam& team, Index t) {
        const A* logits = &logits_TE(t, 0);
        A* scores = &scores_TE(t, 0);
        A sum = sigmoid ? detail::sigmoid_row(team, logits, experts, scores)
                        : detail::softmax_row(team, logits, experts, scores);
        team.barrier();
        const detail::LogitKeys<A> unbiased{logits};
        const detail::BiasedKeys<A> biased{scores, bias};
        if (bias != nullptr) {
          sum += team.template sum<A>(experts, [&](Index e) { return biased(e); });
        }
        const bool real = real_T(t) != 0;
        const bool finite = sum == sum;
        detail::ExpertGroups allowed{groups, experts / groups, 1};
        if (groups > 1 && real && finite) {
          allowed.allowed =
              detail::best_groups<A>(team, biased, groups, allowed.run, top_groups);
        }
        auto chosen = detail::before_all_candidates<A>();
        A largest = -Kokkos::Experimental::infinity_v<A>;
        for (Index k = 0; k < choices; ++k) {
          // Without finite logits any distinct experts will do: the weights are NaN.
          Index expert = k;
          if (real && finite) {
            chosen = bias != nullptr
                         ? detail::next_candidate(team, biased, allowed, chosen)
                         : detail::next_candidate(team, unbiased, allowed, chosen);
            expert = chosen.expert;
            largest = Kokkos::max(largest, logits[expert]);
          }
          team.once(
              [&] { index_TK(t, k) = real ? static_cast<std::int32_t>(expert) : -1; });
        }
        team.barrier();
        A weight_sum = 0;
        for (Index k = 0; k < choices; ++k) {
          A weight = real ? sum : A(0);
          if (real && finite) {
            const Index expert = index_TK(t, k);
            weight = of_chosen ? detail::exponential(logits[expert] - largest)
                               : scores[expert];
          }
          weight_sum += weight;
          team.once([&] { weight_TK(t, k) = weight; });
        }
        if (!real) return;
        team.barrier();
        const A divisor = divided ? weight_sum + smallest_sum : A(1);
        team.for_each(choices, [&](Index k) {
          weight_TK(t, k) = weight_TK(t, k) / divisor * scale;
        });
      });
}

// With v = w / scale and dv = scale dw: the softmax over the chosen experts gives
// dlogit_k = v_k (dv_k - sum_j v_j dv_j) = w_k (dw_k - sum_j w_j dw_j / scale) for them
// and 0 for the others. The softmax over all gives dlogit_e = s_e (dv_e - sum_j s_j
// dv_j), with dv_e = 0 for those not chosen; there v = s. The sigmoid gives dlogit_k =
// ds_k s_k (1 - s_k), which is w_k (1 - s_k) dw_k where v = s, and w_k (1 - s_k) (dw_k -
// sum_j w_j dw_j / scale) where v_k = s_k / sum_j s_j.
template <class A>
void router_backward(const ExecSpace& exec, const RouterOptions& options,
                     const DeviceView<const A, 2>& scores_TE,
                     const DeviceView<const std::int32_t, 2>& index_TK,
                     const DeviceView<const A, 2>& weight_TK,
                     const DeviceView<const A, 2>& dweight_TK,
                     const DeviceView<A, 2>& dlogits_TE) {
  constexpr const char* kLabel = "pleat::kernels::router_backward";
  const Index tokens = scores_TE.extent(0);
  const Index experts = scores_TE.extent(1);
  const Index choices = options.top_k;
  check_options(kLabel, options, experts);
  check_extents(kLabel, "index_TK", index_TK, tokens, choices);
  check_extents(kLabel, "weight_TK", weight_TK, tokens, choices);
  check_extents(kLabel, "dweight_TK", dweight_TK, tokens, choices);
  check_extents(kLabel, "dlogits_TE", dlogits_TE, tokens, experts);
  const bool sigmoid = options.score == Score::kSigmoid;
  const bool of_all = !sigmoid && !softmax_of_chosen(options);
  const bool centred = !sigmoid || options.normalize;
  const A scale = static_cast<A>(options.scale);
  detail::for_each_row(
      kLabel, exec, tokens, experts, KOKKOS_LAMBDA(const RowTeam& team, Index t) {
        const A* scores = &scores_TE(t, 0);
        const A* weight = &weight_TK(t, 0);
        const A* dweight = &dweight_TK(t, 0);
        A* dlogits = &dlogits_TE(t, 0);
        const std::int32_t* index = &index_TK(t, 0);
        // Pairs without an expert may carry anything.
        const A dot = team.template sum<A>(choices, [&](Index k) {
          return index[k] >= 0 ? weight[k] * dweight[k] : A(0);
        });
        const A others = of_all ? -dot : A(0);
        const A mean = centred ? dot / scale : A(0);
        team.for_each(experts, [&](Index e) {
          dlogits[e] = others == A(0) ? A(0) : scores[e] * others;
        });
        team.barrier();
        team.for_each(choices, [&](Index k) {
          if (index[k] < 0) return;
          const A slope = sigmoid ? A(1) - scores[index[k]] : A(1);
          dlogits[index[k]] = weight[k] * slope * (dweight[k] - mean);
        });
      });
}

#define PLEAT_INSTANTIATE_ROUTER(A)                                            \
  template void router_forward<A>(                                             \
      const ExecSpace&, const RouterOptions&, const DeviceView<const A, 2>&,   \
      const DeviceView<const A, 1>&, const DeviceView<const std::uint8_t, 1>&, \
      const DeviceView<A, 2>&, const DeviceView<std::int32_t, 2>&,             \
      const DeviceView<A, 2>&);                                                \
  template void router_backward<A>(                                            \
      const ExecSpace&, const RouterOptions&, const DeviceView<const A, 2>&,   \
      const DeviceView<const std::int32_t, 2>&, const DeviceView<const A, 2>&, \
      const DeviceView<const A, 2>&, const DeviceView<A, 2>&);

PLEAT_INSTANTIATE_ROUTER(float)
PLEAT_INSTANTIATE_ROUTER(double)
#undef PLEAT_INSTANTIATE_ROUTER

}  // namespace pleat::kernels
