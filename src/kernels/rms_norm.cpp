// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/rms_norm.hpp"

#include "rows.hpp"

namespace pleat::kernels {

using detail::check_extents;
using detail::Index;
using detail::RowTeam;

namespace {

/// \brief 1 / sqrt(mean(x^2) + eps) of one row.
template <class A, class T>
KOKKOS_FORCEINLINE_FUNCTION A inverse_rms_of(const RowTeam& team, const T* x,
                                             Index length, A eps) {
  const A squares = team.sum<A>(length, [&](Index d) {
    const A value = static_cast<A>(x[d]);
    return value * value;
  });
  return A(1) / Kokkos::sqrt(squares / static_cast<A>(length) + eps);
}

/// \brief y = w x / rms(x); x and y may be the same memory.
template <class A, class T>
KOKKOS_FORCEINLINE_FUNCTION void scale_row(const RowTeam& team, const T* x, const T* w,
                                           A inverse_rms, Index length, T* y) {
  team.for_each(length, [&](Index d) {
    y[d] = static_cast<T>(static_cast<A>(w[d]) * (static_cast<A>(x[d]) * inverse_rms));
  });
}

/// \brief What a row's gradient subtracts along x: with r = 1 / rms(x) and g = w dy,
/// dx = r g - x r^3 mean(g x).
template <class A, class T>
KOKKOS_FORCEINLINE_FUNCTION A radial_part(const RowTeam& team, const T* x, const T* w,
                                          const T* dy, A inverse_rms, Index length) {
  const A dot = team.sum<A>(length, [&](Index d) {
    return static_cast<A>(w[d]) * static_cast<A>(dy[d]) * static_cast<A>(x[d]);
  });
  return dot * inverse_rms * inverse_rms * inverse_rms / static_cast<A>(length);
}

}  // namespace

template <class T>
void rms_norm_forward(const ExecSpace& exec, const DeviceView<const T, 2>& x_TD,
                      const DeviceView<const T, 1>& w_D, double eps,
                      const DeviceView<T, 2>& y_TD,
                      const DeviceView<Accumulator<T>, 1>& inverse_rms_T) {
  using A = Accumulator<T>;
  constexpr const char* kLabel = "pleat::kernels::rms_norm_forward";
  const Index tokens = x_TD.extent(0);
  const Index hidden = x_TD.extent(1);
  check_extents(kLabel, "w_D", w_D, hidden);
  check_extents(kLabel, "y_TD", y_TD, tokens, hidden);
  check_extents(kLabel, "inverse_rms_T", inverse_rms_T, tokens);
  const A epsilon = static_cast<A>(eps);
  detail::for_each_row(
      kLabel, exec, tokens, hidden, KOKKOS_LAMBDA(const RowTeam& team, Index t) {
        const T* x = &x_TD(t, 0);
        const A r = inverse_rms_of<A>(team, x, hidden, epsilon);
        scale_row<A>(team, x, w_D.data(), r, hidden, &y_TD(t, 0));
        team.once([&] { inverse_rms_T(t) = r; });
      });
}

template <class T>
void rms_norm_backward(const ExecSpace& exec, const DeviceView<const T, 2>& x_TD,
                       const DeviceView<const T, 1>& w_D,
                       const DeviceView<const Accumulator<T>, 1>& inverse_rms_T,
                       const DeviceView<const T, 2>& dy_TD, Arena& scratch,
                       const DeviceView<T, 2>& dx_TD,
                       const DeviceView<Gradient<T>, 1>& dw_D) {
  using A = Accumulator<T>;
  constexpr const char* kLabel = "pleat::kernels::rms_norm_backward";
  const Index tokens = x_TD.extent(0);
  const Index hidden = x_TD.extent(1);
  check_extents(kLabel, "w_D", w_D, hidden);
  check_extents(kLabel, "inverse_rms_T", inverse_rms_T, tokens);
  check_extents(kLabel, "dy_TD", dy_TD, tokens, hidden);
  check_extents(kLabel, "dx_TD", dx_TD, tokens, hidden);
  check_extents(kLabel, "dw_D", dw_D, hidden);
  const ArenaScope scope(scratch);
  const Index blocks = detail::blocks_of(tokens, detail::kBlockRows);
  const auto partial_BD = scratch.take<A>(blocks, hidden);
  detail::for_each_row(
      kLabel, exec, blocks, hidden, KOKKOS_LAMBDA(const RowTeam& team, Index block) {
        A* partial = &partial_BD(block, 0);
        const T* w = w_D.data();
        team.for_each(hidden, [&](Index d) { partial[d] = 0; });
        const Index first = block * detail::kBlockRows;
        const Index last = Kokkos::min(first + detail::kBlockRows, tokens);
        for (Index t = first; t < last; ++t) {
          const T* x = &x_TD(t, 0);
          const T* dy = &dy_TD(t, 0);
          T* dx = &dx_TD(t, 0);
          const A r = inverse_rms_T(t);
          const A radial = radial_part<A>(team, x, w, dy, r, hidden);
          // The team splits the row alike in every loop, so partial needs no barrier.
          team.for_each(hidden, [&](Index d) {
            const A x_d = static_cast<A>(x[d]);
            const A dy_d = static_cast<A>(dy[d]);
            partial[d] += dy_d * (x_d * r);
            dx[d] = static_cast<T>(static_cast<A>(dx[d]) +
                                   (r * static_cast<A>(w[d]) * dy_d - x_d * radial));
          });
        }
      });
  detail::add_partial_rows<A, Gradient<T>>(kLabel, exec, partial_BD, dw_D);
}

template <class T>
void head_rms_norm_forward(const ExecSpace& exec, std::int64_t first_head,
                           std::int64_t heads, std::int64_t head_dim,
                           const DeviceView<const T, 1>& w_d, double eps,
                           const DeviceView<T, 2>& qkv_TQ) {
  using A = Accumulator<T>;
  constexpr const char* kLabel = "pleat::kernels::head_rms_norm_forward";
  const Index tokens = qkv_TQ.extent(0);
  check_extents(kLabel, "w_d", w_d, head_dim);
  PLEAT_ASSERT((first_head + heads) * head_dim <= static_cast<Index>(qkv_TQ.extent(1)),
               "{}: heads up to {} of {} exceed a row of {}", kLabel, first_head + heads,
               head_dim, qkv_TQ.extent(1));
  const A epsilon = static_cast<A>(eps);
  detail::for_each_row(
      kLabel, exec, tokens, head_dim, KOKKOS_LAMBDA(const RowTeam& team, Index t) {
        for (Index head = first_head; head < first_head + heads; ++head) {
          T* x = &qkv_TQ(t, head * head_dim);
          const A r = inverse_rms_of<A>(team, x, head_dim, epsilon);
          scale_row<A>(team, x, w_d.data(), r, head_dim, x);
        }
      });
}

template <class T>
void head_rms_norm_backward(const ExecSpace& exec, std::int64_t first_head,
                            std::int64_t heads, std::int64_t head_dim,
                            const DeviceView<const T, 1>& w_d, double eps,
                            const DeviceView<const T, 2>& raw_TQ, Arena& scratch,
                            const DeviceView<T, 2>& dqkv_TQ,
                            const DeviceView<Gradient<T>, 1>& dw_d) {
  using A = Accumulator<T>;
  constexpr const char* kLabel = "pleat::kernels::head_rms_norm_backward";
  const Index tokens = raw_TQ.extent(0);
  check_extents(kLabel, "w_d", w_d, head_dim);
  check_extents(kLabel, "dqkv_TQ", dqkv_TQ, tokens, raw_TQ.extent(1));
  check_extents(kLabel, "dw_d", dw_d, head_dim);
  PLEAT_ASSERT((first_head + heads) * head_dim <= static_cast<Index>(raw_TQ.extent(1)),
               "{}: heads up to {} of {} exceed a row of {}", kLabel, first_head + heads,
               head_dim, raw_TQ.extent(1));
  const A epsilon = static_cast<A>(eps);
  const ArenaScope scope(scratch);
  const Index blocks = detail::blocks_of(tokens, detail::kBlockRows);
  const auto partial_Bd = scratch.take<A>(blocks, head_dim);
  detail::for_each_row(
      kLabel, exec, blocks, head_dim, KOKKOS_LAMBDA(const RowTeam& team, Index block) {
        A* partial = &partial_Bd(block, 0);
        const T* w = w_d.data();
        team.for_each(head_dim, [&](Index d) { partial[d] = 0; });
        const Index first = block * detail::kBlockRows;
        const Index last = Kokkos::min(first + detail::kBlockRows, tokens);
        for (Index t = first; t < last; ++t) {
          for (Index head = first_head; head < first_head + heads; ++head) {
            const T* x = &raw_TQ(t, head * head_dim);
            T* dy = &dqkv_TQ(t, head * head_dim);
            const A r = inverse_rms_of<A>(team, x, head_dim, epsilon);
            const A radial = radial_part<A>(team, x, w, dy, r, head_dim);
            team.for_each(head_dim, [&](Index d) {
              const A x_d = static_cast<A>(x[d]);
              const A dy_d = static_cast<A>(dy[d]);
              partial[d] += dy_d * (x_d * r);
              dy[d] = static_cast<T>(r * static_cast<A>(w[d]) * dy_d - x_d * radial);
            });
          }
        }
      });
  detail::add_partial_rows<A, Gradient<T>>(kLabel, exec, partial_Bd, dw_d);
}

#define PLEAT_INSTANTIATE_RMS_NORM(T)                                                    \
  template void rms_norm_forward<T>(                                                     \
      const ExecSpace&, const DeviceView<const T, 2>&, const DeviceView<const T, 1>&,    \
      double, const DeviceView<T, 2>&, const DeviceView<Accumulator<T>, 1>&);            \
  template void rms_norm_backward<T>(                                                    \
      const ExecSpace&, const DeviceView<const T, 2>&, const DeviceView<const T, 1>&,    \
      const DeviceView<const Accumulator<T>, 1>&, const DeviceView<const T, 2>&, Arena&, \
      const DeviceView<T, 2>&, const DeviceView<Gradient<T>, 1>&);                       \
  template void head_rms_norm_forward<T>(const ExecSpace&, std::int64_t, std::int64_t,   \
                                         std::int64_t, const DeviceView<const T, 1>&,    \
                                         double, const DeviceView<T, 2>&);               \
  template void head_rms_norm_backward<T>(                                               \
      const ExecSpace&, std::int64_t, std::int64_t, std::int64_t,                        \
      const DeviceView<const T, 1>&, double, const DeviceView<const T, 2>&, Arena&,      \
      const DeviceView<T, 2>&, const DeviceView<Gradient<T>, 1>&);

PLEAT_INSTANTIATE_RMS_NORM(float)
PLEAT_INSTANTIATE_RMS_NORM(double)
PLEAT_INSTANTIATE_RMS_NORM(Bf16)
#undef PLEAT_INSTANTIATE_RMS_NORM

}  // namespace pleat::kernels
