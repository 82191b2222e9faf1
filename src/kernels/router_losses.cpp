// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "pleat/kernels/router.hpp"
#include "router_scores.hpp"
#include "row_groups.hpp"
#include "rows.hpp"

namespace pleat::kernels {

using detail::check_extents;
using detail::HeldGroups;
using detail::Index;
using detail::RowTeam;

namespace {

constexpr Index kBlockTokens = 64;

/// \brief What a row of partial sums holds: E counts, E sums of probabilities, the sum of
/// z and the number of tokens.
Index statistics_columns(Index experts) { return 2 * experts + 2; }

template <class A>
void check_statistics(const char* label, const RouterStatistics<A>& statistics,
                      Index groups, Index experts) {
  PLEAT_ASSERT(groups > 0, "{}: {} groups", label, groups);
  check_extents(label, "all", statistics.all, groups * statistics_columns(experts));
  check_extents(label, "counts_GE", statistics.counts_GE, groups, experts);
  check_extents(label, "probability_sum_GE", statistics.probability_sum_GE, groups,
                experts);
  check_extents(label, "z_sum_G", statistics.z_sum_G, groups);
  check_extents(label, "tokens_G", statistics.tokens_G, groups);
}

/// \brief Adds up the rows of each group's blocks in their order; groups of which this
/// rank holds nothing get 0. A row of partial_NC (N blocks) is as statistics_columns
/// says.
template <class A>
void sum_blocks(const ExecSpace& exec, const HeldGroups& held, Index blocks,
                const DeviceView<const double, 2>& partial_NC,
                const RouterStatistics<A>& statistics) {
  const Index groups = statistics.tokens_G.extent(0);
  const Index experts = statistics.counts_GE.extent(1);
  const Index columns = statistics_columns(experts);
  const auto counts_GE = statistics.counts_GE;
  const auto probability_sum_GE = statistics.probability_sum_GE;
  const auto z_sum_G = statistics.z_sum_G;
  const auto tokens_G = statistics.tokens_G;
  Kokkos::parallel_for(
      "pleat::kernels::router_statistics::sum_blocks",
      Kokkos::RangePolicy<ExecSpace, Kokkos::IndexType<Index>>(exec, 0, groups * columns),
      KOKKOS_LAMBDA(Index i) {
        const Index group = i / columns;
        const Index column = i % columns;
        const Index first = (group - held.first) * blocks;
        double sum = 0.0;
        if (held.first <= group && group < held.first + held.count) {
          for (Index b = 0; b < blocks; ++b) sum += partial_NC(first + b, column);
        }
        if (column < experts) {
          counts_GE(group, column) = sum;
        } else if (column < 2 * experts) {
          probability_sum_GE(group, column - experts) = sum;
        } else if (column == 2 * experts) {
          z_sum_G(group) = sum;
        } else {
          tokens_G(group) = sum;
        }
      });
}

}  // namespace

template <class A>
RouterStatistics<A> take_router_statistics(Arena& arena, std::int64_t groups,
                                           std::int64_t experts) {
  RouterStatistics<A> statistics;
  statistics.all = arena.take<double>(groups * statistics_columns(experts));
  double* next = statistics.all.data();
  const auto take = [&next](Index count) { return std::exchange(next, next + count); };
  const auto rows = static_cast<std::size_t>(groups);
  const auto columns = static_cast<std::size_t>(experts);
  statistics.counts_GE = DeviceView<double, 2>(take(groups * experts), rows, columns);
  statistics.probability_sum_GE =
      DeviceView<double, 2>(take(groups * experts), rows, columns);
  statistics.z_sum_G = DeviceView<double, 1>(take(groups), rows);
  statistics.tokens_G = DeviceView<double, 1>(take(groups), rows);
  return statistics;
}

template <class A>
void router_statistics(const ExecSpace& exec, Score score, const RowGroups& rows,
                       const DeviceView<const A, 2>& logits_TE,
                       const DeviceView<const A, 2>& scores_TE,
                       const DeviceView<const std::int32_t, 2>& index_TK,
                       const DeviceView<const std::uint8_t, 1>& real_T, Arena& scratch,
                       const RouterStatistics<A>& statistics) {
  constexpr const char* kLabel = "pleat::kernels::router_statistics";
  const Index tokens = logits_TE.extent(0);
  const Index experts = logits_TE.extent(1);
  const Index choices = index_TK.extent(1);
  check_extents(kLabel, "scores_TE", scores_TE, tokens, experts);
  check_extents(kLabel, "index_TK", index_TK, tokens, choices);
  check_extents(kLabel, "real_T", real_T, tokens);
  check_statistics(kLabel, statistics, rows.groups, experts);
  const bool sigmoid = score == Score::kSigmoid;
  const HeldGroups held = detail::held_groups(kLabel, rows, tokens);
  const Index blocks = detail::blocks_of(held.largest(), kBlockTokens);  // of a group
  const ArenaScope scope(scratch);
  const auto partial_NC =
      scratch.take<double>(held.count * blocks, statistics_columns(experts));
  detail::for_each_row(
      kLabel, exec, held.count * blocks, experts,
      KOKKOS_LAMBDA(const RowTeam& team, Index n) {
        double* counts = &partial_NC(n, 0);
        double* probability_sum = counts + experts;
        team.for_each(2 * experts, [&](Index c) { counts[c] = 0.0; });
        team.barrier();
        double z_sum = 0.0;
        double real_tokens = 0.0;
        const Index group = n / blocks;
        const Index first = held.begin(group) + n % blocks * kBlockTokens;
        const Index last = Kokkos::min(first + kBlockTokens, held.end(group));
        for (Index t = first; t < last; ++t) {
          if (real_T(t) == 0) continue;
          const A* logits = &logits_TE(t, 0);
          const A* scores = &scores_TE(t, 0);
          const std::int32_t* index = &index_TK(t, 0);
          const auto z = static_cast<double>(
              sigmoid ? detail::log_sum_exp(team, logits, experts)
                      : detail::log_sum_exp(team, logits, scores, experts));
          z_sum = Kokkos::fma(z, z, z_sum);
          real_tokens += 1.0;
          const A share =
              sigmoid ? A(1) / detail::sum_of_sigmoids(team, scores, experts) : A(1);
          team.for_each(experts, [&](Index e) {
            probability_sum[e] += static_cast<double>(scores[e] * share);
          });
          // The choices of a token are distinct experts.
          team.for_each(choices, [&](Index k) {
            if (index[k] >= 0) counts[index[k]] += 1.0;
          });
          team.barrier();
        }
        team.once([&] {
          partial_NC(n, 2 * experts) = z_sum;
          partial_NC(n, 2 * experts + 1) = real_tokens;
        });
      });
  sum_blocks<A>(exec, held, blocks, partial_NC, statistics);
}

template <class A>
void router_losses(const ExecSpace& exec, const RouterLossOptions& options,
                   const RouterStatistics<A>& statistics,
                   const DeviceView<double, 1>& losses) {
  constexpr const char* kLabel = "pleat::kernels::router_losses";
  const Index groups = statistics.tokens_G.extent(0);
  const Index experts = statistics.counts_GE.extent(1);
  check_statistics(kLabel, statistics, groups, experts);
  check_extents(kLabel, "losses", losses, 2);
  const auto counts_GE = statistics.counts_GE;
  const auto probability_sum_GE = statistics.probability_sum_GE;
  const auto z_sum_G = statistics.z_sum_G;
  const auto tokens_G = statistics.tokens_G;
  const double auxiliary = options.auxiliary_coefficient * static_cast<double>(experts) /
                           static_cast<double>(options.top_k * groups);
  const double z = options.z_coefficient / static_cast<double>(groups);
  detail::for_each_row(
      kLabel, exec, 1, experts, KOKKOS_LAMBDA(const RowTeam& team, Index) {
        double auxiliary_loss = 0.0;
        double z_loss = 0.0;
        for (Index g = 0; g < groups; ++g) {
          const double tokens = tokens_G(g);
          if (tokens == 0.0) continue;
          const double dot = team.sum<double>(experts, [&](Index e) {
            return counts_GE(g, e) * probability_sum_GE(g, e);
          });
          auxiliary_loss += auxiliary * dot / (tokens * tokens);
          z_loss += z * z_sum_G(g) / tokens;
        }
        team.once([&] {
          losses(0) += auxiliary_loss;
          losses(1) += z_loss;
        });
      });
}

// With n real tokens, f_e = counts_e / (n K) constant and P_e = sum_t p_te / n, the
// auxiliary loss of a group has dp_te = v_e = coefficient E f_e / n, and dlogit_te = p_te
// (v_e - sum_j p_tj v_j) where p is the softmax; where p = s / sum_j s_j, the sigmoids'
// sum, it is that times 1 - s_te. The z-loss has dlogit_te = coefficient 2 logsumexp_t
// softmax_te / n.
template <class A>
void router_losses_backward(const ExecSpace& exec, const RouterLossOptions& options,
                            double scale, const RowGroups& rows,
                            const DeviceView<const A, 2>& logits_TE,
                            const DeviceView<const A, 2>& scores_TE,
                            const DeviceView<const std::uint8_t, 1>& real_T,
                            const RouterStatistics<A>& statistics,
                            const DeviceView<A, 2>& dlogits_TE) {
  constexpr const char* kLabel = "pleat::kernels::router_losses_backward";
  const Index tokens = logits_TE.extent(0);
  const Index experts = logits_TE.extent(1);
  check_extents(kLabel, "scores_TE", scores_TE, tokens, experts);
  check_extents(kLabel, "real_T", real_T, tokens);
  check_extents(kLabel, "dlogits_TE", dlogits_TE, tokens, experts);
  check_statistics(kLabel, statistics, rows.groups, experts);
  const HeldGroups held = detail::held_groups(kLabel, rows, tokens);
  const auto counts_GE = statistics.counts_GE;
  const auto tokens_G = statistics.tokens_G;
  const bool sigmoid = options.score == Score::kSigmoid;
  const double per_group = scale / static_cast<double>(rows.groups);
  const double auxiliary = options.auxiliary_coefficient * static_cast<double>(experts) /
                           static_cast<double>(options.top_k) * per_group;
  const double z = 2.0 * options.z_coefficient * per_group;
  detail::for_each_row(
      kLabel, exec, tokens, experts, KOKKOS_LAMBDA(const RowTeam& team, Index t) {
        if (real_T(t) == 0) return;
        const A* logits = &logits_TE(t, 0);
        const A* scores = &scores_TE(t, 0);
        A* dlogits = &dlogits_TE(t, 0);
        const Index group = held.first + held.held_group(t);
        const double* counts = &counts_GE(group, 0);
        const double real_tokens = tokens_G(group);
        const A v = static_cast<A>(auxiliary / (real_tokens * real_tokens));
        const A two_z = static_cast<A>(z / real_tokens);
        const A dot = team.template sum<A>(
            experts, [&](Index e) { return scores[e] * static_cast<A>(counts[e]); });
        if (sigmoid) {
          const A divisor = detail::sum_of_sigmoids(team, scores, experts);
          const A mean = dot / divisor;
          const A log_sum = detail::log_sum_exp(team, logits, experts);
          team.for_each(experts, [&](Index e) {
            const A slope = scores[e] / divisor * (A(1) - scores[e]);
            dlogits[e] += slope * v * (static_cast<A>(counts[e]) - mean) +
                          two_z * log_sum * detail::exponential(logits[e] - log_sum);
          });
        } else {
          const A dz = two_z * detail::log_sum_exp(team, logits, scores, experts);
          team.for_each(experts, [&](Index e) {
            dlogits[e] += scores[e] * (v * (static_cast<A>(counts[e]) - dot) + dz);
          });
        }
      });
}

#define PLEAT_INSTANTIATE_ROUTER_LOSSES(A)                                           \
  template RouterStatistics<A> take_router_statistics<A>(Arena&, std::int64_t,       \
                                                         std::int64_t);              \
  template void router_statistics<A>(                                                \
      const ExecSpace&, Score, const RowGroups&, const DeviceView<const A, 2>&,      \
      const DeviceView<const A, 2>&, const DeviceView<const std::int32_t, 2>&,       \
      const DeviceView<const std::uint8_t, 1>&, Arena&, const RouterStatistics<A>&); \
  template void router_losses<A>(const ExecSpace&, const RouterLossOptions&,         \
                                 const RouterStatistics<A>&,                         \
                                 const DeviceView<double, 1>&);                      \
  template void router_losses_backward<A>(                                           \
      const ExecSpace&, const RouterLossOptions&, double, const RowGroups&,          \
      const DeviceView<const A, 2>&, const DeviceView<const A, 2>&,                  \
      const DeviceView<const std::uint8_t, 1>&, const RouterStatistics<A>&,          \
      const DeviceView<A, 2>&);

PLEAT_INSTANTIATE_ROUTER_LOSSES(float)
PLEAT_INSTANTIATE_ROUTER_LOSSES(double)
#undef PLEAT_INSTANTIATE_ROUTER_LOSSES

}  // namespace pleat::kernels
