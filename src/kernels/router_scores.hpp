// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Scores of a token from its logits.
///
/// Legend: E experts.

#include "fast_math.hpp"
#include "rows.hpp"

namespace pleat::kernels::detail {

/// \brief Added to a sum of sigmoids that something is divided by.
template <class A>
inline constexpr A kSmallestSum = static_cast<A>(1.0e-20);

/// \brief What a row of sigmoids is divided by to make probabilities of them.
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A sum_of_sigmoids(const RowTeam& team, const A* scores,
                                              Index experts) {
  return kSmallestSum<A> +
         team.template sum<A>(experts, [&](Index e) { return scores[e]; });
}

/// \brief softmax of a row of logits into scores.
/// \return the sum of the exponentials, which is NaN when a logit is NaN or infinite
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A softmax_row(const RowTeam& team, const A* logits,
                                          Index experts, A* scores) {
  constexpr A kLowest = -Kokkos::Experimental::infinity_v<A>;
  const A maximum =
      team.template maximum<A>(experts, kLowest, [&](Index e) { return logits[e]; });
  const A sum = team.template sum<A>(experts, [&](Index e) {
    const A value = exponential(logits[e] - maximum);
    scores[e] = value;
    return value;
  });
  const A reciprocal = A(1) / sum;
  team.for_each(experts, [&](Index e) { scores[e] *= reciprocal; });
  return sum;
}

/// \brief sigmoid of a row of logits into scores.
/// \return their sum, which is NaN when a logit is NaN
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A sigmoid_row(const RowTeam& team, const A* logits,
                                          Index experts, A* scores) {
  return team.template sum<A>(experts, [&](Index e) {
    const A value = sigmoid(logits[e]);
    scores[e] = value;
    return value;
  });
}

/// \brief logsumexp of a row.
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A log_sum_exp(const RowTeam& team, const A* logits,
                                          Index experts) {
  constexpr A kLowest = -Kokkos::Experimental::infinity_v<A>;
  const A maximum =
      team.template maximum<A>(experts, kLowest, [&](Index e) { return logits[e]; });
  const A sum = team.template sum<A>(
      experts, [&](Index e) { return exponential(logits[e] - maximum); });
  return maximum + Kokkos::log(sum);
}

/// \brief The same from the row's softmax: log(sum exp(l)) = l_e - log(s_e) for every e,
/// taken where s_e is largest. Saves the exponentials.
template <class A>
KOKKOS_FORCEINLINE_FUNCTION A log_sum_exp(const RowTeam& team, const A* logits,
                                          const A* softmax, Index experts) {
  constexpr A kLowest = -Kokkos::Experimental::infinity_v<A>;
  const A logit =
      team.template maximum<A>(experts, kLowest, [&](Index e) { return logits[e]; });
  const A score =
      team.template maximum<A>(experts, A(0), [&](Index e) { return softmax[e]; });
  return logit - Kokkos::log(score);
}

}  // namespace pleat::kernels::detail
