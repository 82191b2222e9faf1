// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/permute.hpp"

#include "rows.hpp"

namespace pleat::kernels {

using detail::check_extents;
using detail::Index;
using detail::RowTeam;

namespace {

using Range = Kokkos::RangePolicy<ExecSpace, Kokkos::IndexType<Index>>;

// Tokens that one thread counts and places. The result does not depend on it.
constexpr Index kTokens = 64;

/// \brief count_EB = pairs of each block of tokens that go to each expert.
void count_pairs(const ExecSpace& exec, const DeviceView<const std::int32_t, 2>& index_TK,
                 const DeviceView<Index, 2>& count_EB) {
  const Index tokens = index_TK.extent(0);
  const Index choices = index_TK.extent(1);
  const Index experts = count_EB.extent(0);
  Kokkos::parallel_for(
      "pleat::kernels::make_permutation::count", Range(exec, 0, count_EB.extent(1)),
      KOKKOS_LAMBDA(Index block) {
        for (Index e = 0; e < experts; ++e) count_EB(e, block) = 0;
        const Index last = Kokkos::min((block + 1) * kTokens, tokens);
        for (Index t = block * kTokens; t < last; ++t) {
          for (Index k = 0; k < choices; ++k) {
            const Index e = index_TK(t, k);
            if (e >= 0) ++count_EB(e, block);
          }
        }
      });
}

/// \brief Turns the counts into the first row of each (expert, block), by an exclusive
/// scan in that order, and fills offsets_E1.
void scan_counts(const ExecSpace& exec, const DeviceView<Index, 2>& first_EB,
                 const DeviceView<Index, 1>& offsets_E1) {
  const Index experts = first_EB.extent(0);
  const Index blocks = first_EB.extent(1);
  Kokkos::parallel_scan(
      "pleat::kernels::make_permutation::scan", Range(exec, 0, experts * blocks),
      KOKKOS_LAMBDA(Index i, Index & sum, bool last_pass) {
        const Index count = first_EB.data()[i];
        if (last_pass) {
          first_EB.data()[i] = sum;
          if (i % blocks == 0) offsets_E1(i / blocks) = sum;
          if (i == experts * blocks - 1) offsets_E1(experts) = sum + count;
        }
        sum += count;
      });
}

/// \brief Gives every pair its row; first_EB is used up.
void place_pairs(const ExecSpace& exec, const DeviceView<const std::int32_t, 2>& index_TK,
                 const DeviceView<Index, 2>& first_EB, const Permutation& permutation) {
  const Index tokens = index_TK.extent(0);
  const Index choices = index_TK.extent(1);
  const auto row_TK = permutation.row_TK;
  Kokkos::parallel_for(
      "pleat::kernels::make_permutation::place", Range(exec, 0, first_EB.extent(1)),
      KOKKOS_LAMBDA(Index block) {
        const Index last = Kokkos::min((block + 1) * kTokens, tokens);
        for (Index t = block * kTokens; t < last; ++t) {
          for (Index k = 0; k < choices; ++k) {
            const Index e = index_TK(t, k);
            row_TK(t, k) = e >= 0 ? first_EB(e, block)++ : -1;
          }
        }
      });
}

/// \brief y = sum of the given rows, choice by choice.
template <class View, class T>
KOKKOS_FORCEINLINE_FUNCTION void add_rows(const RowTeam& team, const View& y_RD,
                                          const Index* row, Index choices, Index first,
                                          Index count, T* y) {
  bool empty = true;
  for (Index k = 0; k < choices; ++k) {
    if (row[k] < 0) continue;
    const auto* from = &y_RD(row[k], first);
    if (empty) {
      team.for_each(count, [&](Index d) { y[d] = static_cast<T>(from[d]); });
    } else {
      team.for_each(count, [&](Index d) { y[d] += static_cast<T>(from[d]); });
    }
    empty = false;
  }
  if (empty) team.for_each(count, [&](Index d) { y[d] = T(0); });
}

/// \brief The same where T would round each partial sum: the sums are formed in the
/// accumulator, element by element on a device, slab by slab on a host, for its vectors.
template <class View, class T>
KOKKOS_FORCEINLINE_FUNCTION void add_rows_rounded(const RowTeam& team, const View& y_RD,
                                                  const Index* row, Index choices,
                                                  Index hidden, T* y) {
  using A = Accumulator<T>;
  if constexpr (detail::kOnHost) {
    constexpr Index kColumns = 256;
    A sum[kColumns];
    for (Index first = 0; first < hidden; first += kColumns) {
      const Index count = Kokkos::min(kColumns, hidden - first);
      add_rows(team, y_RD, row, choices, first, count, &sum[0]);
      team.for_each(count, [&](Index d) { y[first + d] = static_cast<T>(sum[d]); });
    }
  } else {
    team.for_each(hidden, [&](Index d) {
      A sum = 0;
      for (Index k = 0; k < choices; ++k) {
        if (row[k] >= 0) sum += static_cast<A>(y_RD(row[k], d));
      }
      y[d] = static_cast<T>(sum);
    });
  }
}

template <class View, class T>
KOKKOS_FORCEINLINE_FUNCTION void sum_rows(const RowTeam& team, const View& y_RD,
                                          const Index* row, Index choices, Index hidden,
                                          T* y) {
  if constexpr (std::is_same_v<T, Accumulator<T>>) {
    add_rows(team, y_RD, row, choices, 0, hidden, y);
  } else {
    add_rows_rounded(team, y_RD, row, choices, hidden, y);
  }
}

}  // namespace

void make_permutation(const ExecSpace& exec,
                      const DeviceView<const std::int32_t, 2>& index_TK,
                      std::int64_t experts, Arena& scratch,
                      const Permutation& permutation) {
  constexpr const char* kLabel = "pleat::kernels::make_permutation";
  const Index tokens = index_TK.extent(0);
  const Index choices = index_TK.extent(1);
  PLEAT_ASSERT(experts > 0, "{}: no experts", kLabel);
  check_extents(kLabel, "offsets_E1", permutation.offsets_E1, experts + 1);
  check_extents(kLabel, "row_TK", permutation.row_TK, tokens, choices);
  const ArenaScope scope(scratch);
  const Index blocks = Kokkos::max(detail::blocks_of(tokens, kTokens), Index{1});
  const auto first_EB = scratch.take<Index>(experts, blocks);
  count_pairs(exec, index_TK, first_EB);
  scan_counts(exec, first_EB, permutation.offsets_E1);
  place_pairs(exec, index_TK, first_EB, permutation);
}

void pad_permutation(const ExecSpace& exec,
                     const DeviceView<const std::int32_t, 2>& index_TK, std::int64_t rows,
                     const Permutation& permutation) {
  constexpr const char* kLabel = "pleat::kernels::pad_permutation";
  const auto row_TK = permutation.row_TK;
  const auto offsets_E1 = permutation.offsets_E1;
  const Index choices = row_TK.extent(1);
  check_extents(kLabel, "index_TK", index_TK, row_TK.extent(0), choices);
  Kokkos::parallel_for(
      kLabel, Range(exec, 0, row_TK.size()), KOKKOS_LAMBDA(Index pair) {
        const Index e = index_TK(pair / choices, pair % choices);
        if (e < 0) return;
        Index& row = row_TK(pair / choices, pair % choices);
        const Index place = row - offsets_E1(e);
        if (place >= rows) Kokkos::abort("pad_permutation: more pairs than rows");
        row = e * rows + place;
      });
  Kokkos::parallel_for(
      kLabel, Range(exec, 0, offsets_E1.size()),
      KOKKOS_LAMBDA(Index e) { offsets_E1(e) = e * rows; });
}

void select_experts(const ExecSpace& exec, const DeviceView<std::int32_t, 2>& index_TK,
                    std::int64_t first, std::int64_t count,
                    std::int64_t tokens_per_source) {
  const Index tokens = index_TK.extent(0);
  const Index choices = index_TK.extent(1);
  const Index tokens_each = tokens_per_source > 0 ? tokens_per_source : tokens;
  const Index sources = tokens_per_source > 0 ? tokens / tokens_per_source : 1;
  Kokkos::parallel_for(
      "pleat::kernels::select_experts", Range(exec, 0, index_TK.size()),
      KOKKOS_LAMBDA(Index pair) {
        const Index t = pair / choices;
        std::int32_t& index = index_TK(t, pair % choices);
        const Index e = index - first;
        const Index number = e * sources + t / tokens_each;
        index = e >= 0 && e < count ? static_cast<std::int32_t>(number) : -1;
      });
}

template <class T>
void permute_rows(const ExecSpace& exec, const Permutation& permutation,
                  const DeviceView<const T, 2>& x_TD, const DeviceView<T, 2>& x_RD) {
  constexpr const char* kLabel = "pleat::kernels::permute_rows";
  const auto row_TK = permutation.row_TK;
  const Index choices = row_TK.extent(1);
  const Index hidden = x_TD.extent(1);
  check_extents(kLabel, "x_TD", x_TD, row_TK.extent(0), hidden);
  check_extents(kLabel, "x_RD", x_RD, x_RD.extent(0), hidden);
  // By tokens, so that a row is read once for all its choices.
  detail::for_each_row(
      kLabel, exec, x_TD.extent(0), hidden, KOKKOS_LAMBDA(const RowTeam& team, Index t) {
        const T* from = &x_TD(t, 0);
        for (Index k = 0; k < choices; ++k) {
          if (row_TK(t, k) < 0) continue;
          T* to = &x_RD(row_TK(t, k), 0);
          team.copy(hidden, from, to);
        }
      });
}

template <class T>
void unpermute_sum(const ExecSpace& exec, const Permutation& permutation,
                   const DeviceView<const T, 2>& y_RD, const DeviceView<T, 2>& y_TD) {
  constexpr const char* kLabel = "pleat::kernels::unpermute_sum";
  const auto row_TK = permutation.row_TK;
  const Index choices = row_TK.extent(1);
  const Index hidden = y_TD.extent(1);
  check_extents(kLabel, "y_TD", y_TD, row_TK.extent(0), hidden);
  check_extents(kLabel, "y_RD", y_RD, y_RD.extent(0), hidden);
  detail::for_each_row(
      kLabel, exec, y_TD.extent(0), hidden, KOKKOS_LAMBDA(const RowTeam& team, Index t) {
        sum_rows(team, y_RD, &row_TK(t, 0), choices, hidden, &y_TD(t, 0));
      });
}

template <class A>
void permute_values(const ExecSpace& exec, const Permutation& permutation,
                    const DeviceView<const A, 2>& value_TK,
                    const DeviceView<A, 1>& value_R) {
  constexpr const char* kLabel = "pleat::kernels::permute_values";
  const auto row_TK = permutation.row_TK;
  const Index choices = row_TK.extent(1);
  check_extents(kLabel, "value_TK", value_TK, row_TK.extent(0), choices);
  Kokkos::parallel_for(
      kLabel, Range(exec, 0, value_TK.size()), KOKKOS_LAMBDA(Index pair) {
        const Index row = row_TK(pair / choices, pair % choices);
        if (row >= 0) value_R(row) = value_TK(pair / choices, pair % choices);
      });
}

template <class A>
void unpermute_values(const ExecSpace& exec, const Permutation& permutation,
                      const DeviceView<const A, 1>& value_R,
                      const DeviceView<A, 2>& value_TK) {
  constexpr const char* kLabel = "pleat::kernels::unpermute_values";
  const auto row_TK = permutation.row_TK;
  const Index choices = row_TK.extent(1);
  check_extents(kLabel, "value_TK", value_TK, row_TK.extent(0), choices);
  Kokkos::parallel_for(
      kLabel, Range(exec, 0, value_TK.size()), KOKKOS_LAMBDA(Index pair) {
        const Index row = row_TK(pair / choices, pair % choices);
        value_TK(pair / choices, pair % choices) = row >= 0 ? value_R(row) : A(0);
      });
}

void place_segments(const ExecSpace& exec,
                    const DeviceView<const std::int64_t, 2>& segments_S3,
                    const DeviceView<std::int64_t, 1>& to_R) {
  constexpr const char* kLabel = "pleat::kernels::place_segments";
  const Index segments = segments_S3.extent(0);
  check_extents(kLabel, "segments_S3", segments_S3, segments, 3);
  const Index typical = to_R.extent(0) / Kokkos::max(segments, Index{1});
  detail::for_each_row(
      kLabel, exec, segments, typical, KOKKOS_LAMBDA(const RowTeam& team, Index s) {
        const Index from = segments_S3(s, 0);
        const Index to = segments_S3(s, 1);
        team.for_each(segments_S3(s, 2), [&](Index i) { to_R(from + i) = to + i; });
      });
}

template <class T>
void scatter_rows(const ExecSpace& exec, const DeviceView<const std::int64_t, 1>& to_R,
                  const DeviceView<const T, 2>& x_RD, const DeviceView<T, 2>& y_RD) {
  constexpr const char* kLabel = "pleat::kernels::scatter_rows";
  const Index hidden = x_RD.extent(1);
  check_extents(kLabel, "x_RD", x_RD, to_R.extent(0), hidden);
  check_extents(kLabel, "y_RD", y_RD, to_R.extent(0), hidden);
  detail::for_each_row(
      kLabel, exec, to_R.extent(0), hidden, KOKKOS_LAMBDA(const RowTeam& team, Index r) {
        const T* from = &x_RD(r, 0);
        T* to = &y_RD(to_R(r), 0);
        team.copy(hidden, from, to);
      });
}

template <class T>
void gather_rows(const ExecSpace& exec, const DeviceView<const std::int64_t, 1>& from_R,
                 const DeviceView<const T, 2>& x_RD, const DeviceView<T, 2>& y_RD) {
  constexpr const char* kLabel = "pleat::kernels::gather_rows";
  const Index hidden = x_RD.extent(1);
  check_extents(kLabel, "x_RD", x_RD, from_R.extent(0), hidden);
  check_extents(kLabel, "y_RD", y_RD, from_R.extent(0), hidden);
  detail::for_each_row(
      kLabel, exec, from_R.extent(0), hidden,
      KOKKOS_LAMBDA(const RowTeam& team, Index r) {
        const T* from = &x_RD(from_R(r), 0);
        T* to = &y_RD(r, 0);
        team.copy(hidden, from, to);
      });
}

#define PLEAT_INSTANTIATE_PERMUTE(T)                                                     \
  template void permute_rows<T>(const ExecSpace&, const Permutation&,                    \
                                const DeviceView<const T, 2>&, const DeviceView<T, 2>&); \
  template void unpermute_sum<T>(const ExecSpace&, const Permutation&,                   \
                                 const DeviceView<const T, 2>&,                          \
                                 const DeviceView<T, 2>&);                               \
  template void permute_values<T>(const ExecSpace&, const Permutation&,                  \
                                  const DeviceView<const T, 2>&,                         \
                                  const DeviceView<T, 1>&);                              \
  template void unpermute_values<T>(const ExecSpace&, const Permutation&,                \
                                    const DeviceView<const T, 1>&,                       \
                                    const DeviceView<T, 2>&);                            \
  template void scatter_rows<T>(const ExecSpace&,                                        \
                                const DeviceView<const std::int64_t, 1>&,                \
                                const DeviceView<const T, 2>&, const DeviceView<T, 2>&); \
  template void gather_rows<T>(const ExecSpace&,                                         \
                               const DeviceView<const std::int64_t, 1>&,                 \
                               const DeviceView<const T, 2>&, const DeviceView<T, 2>&);

PLEAT_INSTANTIATE_PERMUTE(float)
PLEAT_INSTANTIATE_PERMUTE(double)
PLEAT_INSTANTIATE_PERMUTE(Bf16)
#undef PLEAT_INSTANTIATE_PERMUTE

}  // namespace pleat::kernels
