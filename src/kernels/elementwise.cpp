// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/elementwise.hpp"

#include "fast_math.hpp"
#include "rows.hpp"

namespace pleat::kernels {

using detail::check_extents;
using detail::Index;
using detail::RowTeam;

template <class T>
void add_in_place(const ExecSpace& exec, const DeviceView<const T, 2>& x_TD,
                  const DeviceView<T, 2>& y_TD) {
  constexpr const char* kLabel = "pleat::kernels::add_in_place";
  const Index hidden = x_TD.extent(1);
  check_extents(kLabel, "y_TD", y_TD, x_TD.extent(0), hidden);
  detail::for_each_row(
      kLabel, exec, x_TD.extent(0), hidden, KOKKOS_LAMBDA(const RowTeam& team, Index t) {
        const T* x = &x_TD(t, 0);
        T* y = &y_TD(t, 0);
        team.for_each(hidden, [&](Index d) { y[d] += x[d]; });
      });
}

template <class T>
void add_bias(const ExecSpace& exec, const DeviceView<const T, 1>& bias_D,
              const DeviceView<T, 2>& y_TD) {
  constexpr const char* kLabel = "pleat::kernels::add_bias";
  const Index hidden = y_TD.extent(1);
  check_extents(kLabel, "bias_D", bias_D, hidden);
  detail::for_each_row(
      kLabel, exec, y_TD.extent(0), hidden, KOKKOS_LAMBDA(const RowTeam& team, Index t) {
        const T* bias = bias_D.data();
        T* y = &y_TD(t, 0);
        team.for_each(hidden, [&](Index d) { y[d] += bias[d]; });
      });
}

template <class T>
void add_bias_backward(const ExecSpace& exec, const DeviceView<const T, 2>& dy_TD,
                       Arena& scratch, const DeviceView<Gradient<T>, 1>& dbias_D) {
  using A = Accumulator<T>;
  constexpr const char* kLabel = "pleat::kernels::add_bias_backward";
  const Index tokens = dy_TD.extent(0);
  const Index hidden = dy_TD.extent(1);
  check_extents(kLabel, "dbias_D", dbias_D, hidden);
  const ArenaScope scope(scratch);
  const Index blocks = detail::blocks_of(tokens, detail::kBlockRows);
  const auto partial_BD = scratch.take<A>(blocks, hidden);
  detail::for_each_row(
      kLabel, exec, blocks, hidden, KOKKOS_LAMBDA(const RowTeam& team, Index block) {
        A* partial = &partial_BD(block, 0);
        team.for_each(hidden, [&](Index d) { partial[d] = 0; });
        const Index first = block * detail::kBlockRows;
        const Index last = Kokkos::min(first + detail::kBlockRows, tokens);
        for (Index t = first; t < last; ++t) {
          const T* dy = &dy_TD(t, 0);
          team.for_each(hidden, [&](Index d) { partial[d] += static_cast<A>(dy[d]); });
        }
      });
  detail::add_partial_rows<A, Gradient<T>>(kLabel, exec, partial_BD, dbias_D);
}

template <class T>
void add_sigmoid_gated(const ExecSpace& exec, const DeviceView<const T, 2>& gate_T1,
                       const DeviceView<const T, 2>& x_TD, const DeviceView<T, 2>& y_TD) {
  using A = Accumulator<T>;
  constexpr const char* kLabel = "pleat::kernels::add_sigmoid_gated";
  const Index tokens = x_TD.extent(0);
  const Index hidden = x_TD.extent(1);
  check_extents(kLabel, "gate_T1", gate_T1, tokens, 1);
  check_extents(kLabel, "y_TD", y_TD, tokens, hidden);
  detail::for_each_row(
      kLabel, exec, tokens, hidden, KOKKOS_LAMBDA(const RowTeam& team, Index t) {
        const T* x = &x_TD(t, 0);
        T* y = &y_TD(t, 0);
        const A gate = detail::sigmoid(static_cast<A>(gate_T1(t, 0)));
        team.for_each(hidden, [&](Index d) {
          y[d] = static_cast<T>(gate * static_cast<A>(x[d]) + static_cast<A>(y[d]));
        });
      });
}

template <class T>
void sigmoid_gated_backward(const ExecSpace& exec, const DeviceView<const T, 2>& gate_T1,
                            const DeviceView<const T, 2>& x_TD,
                            const DeviceView<const T, 2>& dy_TD,
                            const DeviceView<T, 2>& dx_TD,
                            const DeviceView<T, 2>& dgate_T1) {
  using A = Accumulator<T>;
  constexpr const char* kLabel = "pleat::kernels::sigmoid_gated_backward";
  const Index tokens = x_TD.extent(0);
  const Index hidden = x_TD.extent(1);
  check_extents(kLabel, "gate_T1", gate_T1, tokens, 1);
  check_extents(kLabel, "dy_TD", dy_TD, tokens, hidden);
  check_extents(kLabel, "dx_TD", dx_TD, tokens, hidden);
  check_extents(kLabel, "dgate_T1", dgate_T1, tokens, 1);
  detail::for_each_row(
      kLabel, exec, tokens, hidden, KOKKOS_LAMBDA(const RowTeam& team, Index t) {
        const T* x = &x_TD(t, 0);
        const T* dy = &dy_TD(t, 0);
        T* dx = &dx_TD(t, 0);
        const A gate = detail::sigmoid(static_cast<A>(gate_T1(t, 0)));
        const A dot = team.sum<A>(hidden, [&](Index d) {
          const A x_d = static_cast<A>(x[d]);
          const A dy_d = static_cast<A>(dy[d]);
          dx[d] = static_cast<T>(gate * dy_d);
          return x_d * dy_d;
        });
        team.once([&] { dgate_T1(t, 0) = static_cast<T>(gate * (A(1) - gate) * dot); });
      });
}

template <class T>
void sum_of_squares(const ExecSpace& exec, const DeviceView<const T, 1>& x_N,
                    Arena& scratch, const DeviceView<double, 0>& result) {
  constexpr const char* kLabel = "pleat::kernels::sum_of_squares";
  constexpr Index kBlock = 16384;
  const Index count = x_N.extent(0);
  const Index blocks = detail::blocks_of(count, kBlock);
  const ArenaScope scope(scratch);
  const auto partial_B = scratch.take<double>(blocks);
  detail::for_each_row(
      kLabel, exec, blocks, kBlock, KOKKOS_LAMBDA(const RowTeam& team, Index block) {
        const Index first = block * kBlock;
        const T* x = x_N.data() + first;
        const double sum =
            team.sum<double>(Kokkos::min(kBlock, count - first), [&](Index i) {
              const double value = static_cast<double>(x[i]);
              return value * value;
            });
        team.once([&] { partial_B(block) = sum; });
      });
  detail::for_each_row(
      kLabel, exec, 1, blocks, KOKKOS_LAMBDA(const RowTeam& team, Index) {
        const double* partial = partial_B.data();
        const double sum =
            team.sum<double>(blocks, [&](Index block) { return partial[block]; });
        team.once([&] { result() = sum; });
      });
}

template <class From, class To>
void convert(const ExecSpace& exec, const DeviceView<const From, 1>& x_N,
             const DeviceView<To, 1>& y_N) {
  constexpr const char* kLabel = "pleat::kernels::convert";
  constexpr Index kBlock = 4096;
  const Index count = x_N.extent(0);
  check_extents(kLabel, "y_N", y_N, count);
  detail::for_each_row(
      kLabel, exec, detail::blocks_of(count, kBlock), kBlock,
      KOKKOS_LAMBDA(const RowTeam& team, Index block) {
        const Index first = block * kBlock;
        const From* x = x_N.data() + first;
        To* y = y_N.data() + first;
        team.for_each(Kokkos::min(kBlock, count - first),
                      [&](Index i) { y[i] = static_cast<To>(x[i]); });
      });
}

template <class T>
bool has_non_finite(const ExecSpace& exec, const DeviceView<const T, 1>& x_N) {
  Index found = 0;
  Kokkos::parallel_reduce(
      "pleat::kernels::has_non_finite",
      Kokkos::RangePolicy<ExecSpace, Kokkos::IndexType<Index>>(exec, 0, x_N.extent(0)),
      KOKKOS_LAMBDA(Index i, Index & count) {
        // x - x is 0 for every finite number and NaN for the others.
        const auto x = static_cast<Accumulator<T>>(x_N(i));
        count += x - x == 0 ? 0 : 1;
      },
      found);
  return found != 0;
}

#define PLEAT_INSTANTIATE_ELEMENTWISE(T)                                                \
  template void add_in_place<T>(const ExecSpace&, const DeviceView<const T, 2>&,        \
                                const DeviceView<T, 2>&);                               \
  template void add_bias<T>(const ExecSpace&, const DeviceView<const T, 1>&,            \
                            const DeviceView<T, 2>&);                                   \
  template void add_bias_backward<T>(const ExecSpace&, const DeviceView<const T, 2>&,   \
                                     Arena&, const DeviceView<Gradient<T>, 1>&);        \
  template void add_sigmoid_gated<T>(const ExecSpace&, const DeviceView<const T, 2>&,   \
                                     const DeviceView<const T, 2>&,                     \
                                     const DeviceView<T, 2>&);                          \
  template void sigmoid_gated_backward<T>(                                              \
      const ExecSpace&, const DeviceView<const T, 2>&, const DeviceView<const T, 2>&,   \
      const DeviceView<const T, 2>&, const DeviceView<T, 2>&, const DeviceView<T, 2>&); \
  template void sum_of_squares<T>(const ExecSpace&, const DeviceView<const T, 1>&,      \
                                  Arena&, const DeviceView<double, 0>&);                \
  template bool has_non_finite<T>(const ExecSpace&, const DeviceView<const T, 1>&);

PLEAT_INSTANTIATE_ELEMENTWISE(float)
PLEAT_INSTANTIATE_ELEMENTWISE(double)
PLEAT_INSTANTIATE_ELEMENTWISE(Bf16)
#undef PLEAT_INSTANTIATE_ELEMENTWISE

template void convert<float, Bf16>(const ExecSpace&, const DeviceView<const float, 1>&,
                                   const DeviceView<Bf16, 1>&);
template void convert<Bf16, float>(const ExecSpace&, const DeviceView<const Bf16, 1>&,
                                   const DeviceView<float, 1>&);

}  // namespace pleat::kernels
