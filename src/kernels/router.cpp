// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/router.hpp"

#include "fast_math.hpp"
#include "rows.hpp"

namespace pleat::kernels {

using detail::check_extents;
using detail::Index;
using detail::RowTeam;

namespace {

/// \brief A candidate of the top-k selection. Candidates fall by value, then rise by
/// index.
template <class A>
struct Candidate {
  A value;
  Index expert;
};

/// \brief softmax of a row of logits into scores.
/// \return the sum of the exponentials, which is NaN when a logit is NaN or infinite
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A softmax_row(const RowTeam& team, const A* logits,
                                          Index experts, A* scores) {
  constexpr A kLowest = -Kokkos::Experimental::infinity_v<A>;
  const A maximum =
      team.template maximum<A>(experts, kLowest, [&](Index e) { return logits[e]; });
  const A sum = team.template sum<A>(experts, [&](Index e) {
    const A value = detail::exponential(logits[e] - maximum);
    scores[e] = value;
    return value;
  });
  const A reciprocal = A(1) / sum;
  team.for_each(experts, [&](Index e) { scores[e] *= reciprocal; });
  return sum;
}

/// \brief The candidate that follows `last` in the order of candidates. No flags of taken
/// experts are needed, so the row stays read-only.
template <class A>
KOKKOS_FORCEINLINE_FUNCTION Candidate<A> next_candidate(const RowTeam& team,
                                                        const A* logits, Index experts,
                                                        Candidate<A> last) {
  constexpr A kLowest = -Kokkos::Experimental::infinity_v<A>;
  const A value = team.template maximum<A>(experts, kLowest, [&](Index e) {
    const bool follows =
        logits[e] < last.value || (logits[e] == last.value && e > last.expert);
    return follows ? logits[e] : kLowest;
  });
  // The lowest index is the largest negative one.
  const Index first_equal = value == last.value ? last.expert + 1 : 0;
  const Index negative = team.template maximum<Index>(experts, -experts, [&](Index e) {
    return logits[e] == value && e >= first_equal ? -e : -experts;
  });
  return {value, -negative};
}

/// \brief Whether the weights are the softmax over the chosen logits alone: so by
/// definition after top-k, and also before it once they are divided by their sum.
bool softmax_of_chosen(const RouterOptions& options) {
  return options.softmax_after_top_k || options.normalize;
}

}  // namespace

template <class A>
void router_forward(const ExecSpace& exec, const RouterOptions& options,
                    const DeviceView<const A, 2>& logits_TE,
                    const DeviceView<const std::uint8_t, 1>& real_T,
                    const DeviceView<A, 2>& scores_TE,
                    const DeviceView<std::int32_t, 2>& index_TK,
                    const DeviceView<A, 2>& weight_TK) {
  constexpr const char* kLabel = "pleat::kernels::router_forward";
  const Index tokens = logits_TE.extent(0);
  const Index experts = logits_TE.extent(1);
  const Index choices = options.top_k;
  PLEAT_ASSERT(1 <= choices && choices <= experts, "{}: top {} of {} experts", kLabel,
               choices, experts);
  check_extents(kLabel, "real_T", real_T, tokens);
  check_extents(kLabel, "scores_TE", scores_TE, tokens, experts);
  check_extents(kLabel, "index_TK", index_TK, tokens, choices);
  check_extents(kLabel, "weight_TK", weight_TK, tokens, choices);
  const bool of_chosen = softmax_of_chosen(options);
  detail::for_each_row(
      kLabel, exec, tokens, experts, KOKKOS_LAMBDA(const RowTeam& team, Index t) {
        const A* logits = &logits_TE(t, 0);
        A* scores = &scores_TE(t, 0);
        const A sum = softmax_row(team, logits, experts, scores);
        team.barrier();
        const bool real = real_T(t) != 0;
        const bool finite = sum == sum;
        Candidate<A> chosen{Kokkos::Experimental::infinity_v<A>, -1};
        A largest = 0;
        A weight_sum = 0;
        for (Index k = 0; k < choices; ++k) {
          if (real && finite) chosen = next_candidate(team, logits, experts, chosen);
          // Without finite logits any distinct experts will do: the weights are NaN
          // anyway.
          const Index expert = finite ? chosen.expert : k;
          if (k == 0) largest = chosen.value;
          A weight = 0;
          if (real) {
            weight = of_chosen && finite ? detail::exponential(chosen.value - largest)
                                         : scores[expert];
          }
          weight_sum += weight;
          team.once([&] {
            index_TK(t, k) = real ? static_cast<std::int32_t>(expert) : -1;
            weight_TK(t, k) = weight;
          });
        }
        if (real && of_chosen) {
          team.barrier();
          team.for_each(choices, [&](Index k) { weight_TK(t, k) /= weight_sum; });
        }
      });
}

// The softmax over the chosen experts gives dlogit_k = w_k (dw_k - sum_j w_j dw_j) for
// them and 0 for the others. The softmax over all gives dlogit_e = s_e (dw_e - sum_j s_j
// dw_j), with dw_e = 0 for those not chosen; there w = s.
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
  check_extents(kLabel, "index_TK", index_TK, tokens, choices);
  check_extents(kLabel, "weight_TK", weight_TK, tokens, choices);
  check_extents(kLabel, "dweight_TK", dweight_TK, tokens, choices);
  check_extents(kLabel, "dlogits_TE", dlogits_TE, tokens, experts);
  const bool of_chosen = softmax_of_chosen(options);
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
        const A others = of_chosen ? A(0) : -dot;
        team.for_each(experts, [&](Index e) {
          dlogits[e] = others == A(0) ? A(0) : scores[e] * others;
        });
        team.barrier();
        team.for_each(choices, [&](Index k) {
          if (index[k] >= 0) dlogits[index[k]] = weight[k] * (dweight[k] - dot);
        });
      });
}

#define PLEAT_INSTANTIATE_ROUTER(A)                                            \
  template void router_forward<A>(                                             \
      const ExecSpace&, const RouterOptions&, const DeviceView<const A, 2>&,   \
      const DeviceView<const std::uint8_t, 1>&, const DeviceView<A, 2>&,       \
      const DeviceView<std::int32_t, 2>&, const DeviceView<A, 2>&);            \
  template void router_backward<A>(                                            \
      const ExecSpace&, const RouterOptions&, const DeviceView<const A, 2>&,   \
      const DeviceView<const std::int32_t, 2>&, const DeviceView<const A, 2>&, \
      const DeviceView<const A, 2>&, const DeviceView<A, 2>&);

PLEAT_INSTANTIATE_ROUTER(float)
PLEAT_INSTANTIATE_ROUTER(double)
#undef PLEAT_INSTANTIATE_ROUTER

}  // namespace pleat::kernels
