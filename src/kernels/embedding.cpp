// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/embedding.hpp"

#include "rows.hpp"

namespace pleat::kernels {

using detail::check_extents;
using detail::Index;
using detail::RowTeam;

namespace {

constexpr const char* kBackwardLabel = "pleat::kernels::embedding_backward";

/// \brief Whether a row of the weight's slice exists.
KOKKOS_FORCEINLINE_FUNCTION bool is_row(Index row, Index rows) {
  return row >= 0 && row < rows;
}

/// \brief On hosts: each thread owns a slab of columns and walks the tokens in their
/// order.
template <class T>
void backward_by_columns(const ExecSpace& exec, Index first_entry,
                         const DeviceView<const std::int32_t, 1>& tokens_T,
                         const DeviceView<const T, 2>& dx_TD,
                         const DeviceView<Gradient<T>, 2>& dw_VD) {
  constexpr Index kColumns = 64;
  const Index tokens = dx_TD.extent(0);
  const Index hidden = dx_TD.extent(1);
  const Index rows = dw_VD.extent(0);
  detail::for_each_row(
      kBackwardLabel, exec, detail::blocks_of(hidden, kColumns), kColumns,
      KOKKOS_LAMBDA(const RowTeam& team, Index slab) {
        const Index first = slab * kColumns;
        const Index count = Kokkos::min(kColumns, hidden - first);
        for (Index t = 0; t < tokens; ++t) {
          const Index row = tokens_T(t) - first_entry;
          if (!is_row(row, rows)) continue;
          const T* dx = &dx_TD(t, first);
          Gradient<T>* dw = &dw_VD(row, first);
          team.for_each(count, [&](Index i) { dw[i] += static_cast<Gradient<T>>(dx[i]); });
        }
      });
}

/// \brief On devices: the team of the first occurrence of a word adds all its
/// occurrences, in their order. No atomics; the comparisons (T^2 in all) come from the
/// cache.
template <class T>
void backward_by_tokens(const ExecSpace& exec, Index first_entry,
                        const DeviceView<const std::int32_t, 1>& tokens_T,
                        const DeviceView<const T, 2>& dx_TD,
                        const DeviceView<Gradient<T>, 2>& dw_VD) {
  const Index tokens = dx_TD.extent(0);
  const Index hidden = dx_TD.extent(1);
  const Index rows = dw_VD.extent(0);
  detail::for_each_row(
      kBackwardLabel, exec, tokens, hidden, KOKKOS_LAMBDA(const RowTeam& team, Index t) {
        const std::int32_t word = tokens_T(t);
        const Index row = word - first_entry;
        if (!is_row(row, rows)) return;
        const Index earlier = team.sum<Index>(
            t, [&](Index i) { return tokens_T(i) == word ? Index{1} : Index{0}; });
        if (earlier > 0) return;
        Gradient<T>* dw = &dw_VD(row, 0);
        for (Index i = t; i < tokens; ++i) {
          if (tokens_T(i) != word) continue;
          const T* dx = &dx_TD(i, 0);
          team.for_each(hidden, [&](Index d) { dw[d] += static_cast<Gradient<T>>(dx[d]); });
        }
      });
}

}  // namespace

template <class T>
void embedding_forward(const ExecSpace& exec, std::int64_t first_entry,
                       const DeviceView<const std::int32_t, 1>& tokens_T,
                       const DeviceView<const T, 2>& w_VD, const DeviceView<T, 2>& x_TD) {
  constexpr const char* kLabel = "pleat::kernels::embedding_forward";
  const Index hidden = w_VD.extent(1);
  const Index rows = w_VD.extent(0);
  check_extents(kLabel, "x_TD", x_TD, tokens_T.extent(0), hidden);
  detail::for_each_row(
      kLabel, exec, x_TD.extent(0), hidden, KOKKOS_LAMBDA(const RowTeam& team, Index t) {
        const Index row = tokens_T(t) - first_entry;
        T* x = &x_TD(t, 0);
        if (!is_row(row, rows)) {
          team.for_each(hidden, [&](Index d) { x[d] = T(0); });
          return;
        }
        team.copy(hidden, &w_VD(row, 0), x);
      });
}

template <class T>
void embedding_backward(const ExecSpace& exec, std::int64_t first_entry,
                        const DeviceView<const std::int32_t, 1>& tokens_T,
                        const DeviceView<const T, 2>& dx_TD,
                        const DeviceView<Gradient<T>, 2>& dw_VD) {
  check_extents(kBackwardLabel, "dx_TD", dx_TD, tokens_T.extent(0), dw_VD.extent(1));
  if constexpr (detail::kOnHost) {
    backward_by_columns<T>(exec, first_entry, tokens_T, dx_TD, dw_VD);
  } else {
    backward_by_tokens<T>(exec, first_entry, tokens_T, dx_TD, dw_VD);
  }
}

#define PLEAT_INSTANTIATE_EMBEDDING(T)                                          \
  template void embedding_forward<T>(                                           \
      const ExecSpace&, std::int64_t, const DeviceView<const std::int32_t, 1>&, \
      const DeviceView<const T, 2>&, const DeviceView<T, 2>&);                  \
  template void embedding_backward<T>(                                          \
      const ExecSpace&, std::int64_t, const DeviceView<const std::int32_t, 1>&, \
      const DeviceView<const T, 2>&, const DeviceView<Gradient<T>, 2>&);

PLEAT_INSTANTIATE_EMBEDDING(float)
PLEAT_INSTANTIATE_EMBEDDING(double)
PLEAT_INSTANTIATE_EMBEDDING(Bf16)
#undef PLEAT_INSTANTIATE_EMBEDDING

}  // namespace pleat::kernels
