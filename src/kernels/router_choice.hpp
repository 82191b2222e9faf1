// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The choice of a token's experts: the largest keys of a row, one after the
/// other, in all of the row or in some of its equal runs.
///
/// Legend: E experts.

#include "rows.hpp"

namespace pleat::kernels::detail {

/// \brief Runs of experts that a mask can tell apart.
inline constexpr Index kMaximalGroups = 64;

/// \brief A candidate of the top-k selection. Candidates fall by value, then rise by
/// index.
template <class A>
struct Candidate {
  A value;
  Index expert;
};

/// \brief What every candidate follows.
template <class A>
KOKKOS_FORCEINLINE_FUNCTION Candidate<A> before_all_candidates() {
  return {Kokkos::Experimental::infinity_v<A>, -1};
}

/// \brief The key of an expert is its logit ...
template <class A>
struct LogitKeys {
  const A* logits;
  KOKKOS_FORCEINLINE_FUNCTION A operator()(Index e) const { return logits[e]; }
};

/// \brief ... or its score plus its bias; no bias where the pointer is null.
template <class A>
struct BiasedKeys {
  const A* scores;
  const A* bias;
  KOKKOS_FORCEINLINE_FUNCTION A operator()(Index e) const {
    return bias == nullptr ? scores[e] : scores[e] + bias[e];
  }
};

/// \brief The runs of `run` experts among which a token chooses: those with their bit
/// set.
struct ExpertGroups {
  Index count;
  Index run;
  std::uint64_t allowed;

  KOKKOS_FORCEINLINE_FUNCTION bool allows(Index group) const {
    return (allowed >> group & 1U) != 0;
  }
};

/// \brief The candidate among experts first .. first + count - 1 that follows `last` in
/// the order of candidates; its expert is first + count when there is none. No flags of
/// taken experts are needed, so the row stays read-only.
template <class A, class Keys>
KOKKOS_FORCEINLINE_FUNCTION Candidate<A> next_candidate(const RowTeam& team,
                                                        const Keys& keys, Index first,
                                                        Index count, Candidate<A> last) {
  constexpr A kLowest = -Kokkos::Experimental::infinity_v<A>;
  const A value = team.template maximum<A>(count, kLowest, [&](Index i) {
    const A key = keys(first + i);
    const bool follows =
        key < last.value || (key == last.value && first + i > last.expert);
    return follows ? key : kLowest;
  });
  // The lowest index is the largest negative one.
  const Index first_equal = value == last.value ? last.expert + 1 : 0;
  const Index none = -(first + count);
  const Index negative = team.template maximum<Index>(count, none, [&](Index i) {
    const Index e = first + i;
    return keys(e) == value && e >= first_equal ? -e : none;
  });
  return {value, -negative};
}

/// \brief The same among the experts of all allowed groups, which hold one that follows.
template <class A, class Keys>
KOKKOS_FORCEINLINE_FUNCTION Candidate<A> next_candidate(const RowTeam& team,
                                                        const Keys& keys,
                                                        const ExpertGroups& groups,
                                                        Candidate<A> last) {
  Candidate<A> best{A(0), -1};
  for (Index g = 0; g < groups.count; ++g) {
    if (!groups.allows(g)) continue;
    const Candidate<A> candidate =
        next_candidate(team, keys, g * groups.run, groups.run, last);
    const bool exists = candidate.expert < (g + 1) * groups.run;
    if (exists && (best.expert < 0 || candidate.value > best.value)) best = candidate;
  }
  return best;
}

/// \brief The mask of the `top` groups with the largest sums of their two best keys (of
/// the only one in groups of one); ties go to the lower group.
template <class A, class Keys>
KOKKOS_INLINE_FUNCTION std::uint64_t best_groups(const RowTeam& team, const Keys& keys,
                                                 Index groups, Index run, Index top) {
  A sums[kMaximalGroups];
  for (Index g = 0; g < groups; ++g) {
    const auto best =
        next_candidate(team, keys, g * run, run, before_all_candidates<A>());
    sums[g] = best.value;
    if (run > 1) sums[g] += next_candidate(team, keys, g * run, run, best).value;
  }
  std::uint64_t mask = 0;
  for (Index i = 0; i < top; ++i) {
    Index best = -1;
    for (Index g = 0; g < groups; ++g) {
      const bool taken = (mask >> g & 1U) != 0;
      if (!taken && (best < 0 || sums[g] > sums[best])) best = g;
    }
    mask |= std::uint64_t{1} << best;
  }
  return mask;
}

}  // namespace pleat::kernels::detail
