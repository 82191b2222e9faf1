// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/cross_entropy.hpp"

#include "fast_math.hpp"
#include "rows.hpp"

namespace pleat::kernels {

using detail::check_extents;
using detail::Index;
using detail::RowTeam;

namespace {

template <class A, class T>
KOKKOS_FORCEINLINE_FUNCTION A maximum_of(const RowTeam& team, const T* x, Index length) {
  // Not minus infinity: a row of nothing else gives NaN rather than the loss of a uniform
  // row.
  constexpr A kLowest = Kokkos::Experimental::finite_min_v<A>;
  return team.template maximum<A>(length, kLowest,
                                  [&](Index i) { return static_cast<A>(x[i]); });
}

/// \brief sum of exp(x - maximum) over a row, in blocks whose sums are added in fp64:
/// that keeps the rounding error of a large vocabulary at the one of a block. Where the
/// row is not constant, the exponentials replace it, since the gradient is a multiple of
/// them.
template <class A, class T>
KOKKOS_FORCEINLINE_FUNCTION double exponential_sum(const RowTeam& team, T* x,
                                                   Index length, A maximum) {
  constexpr Index kColumns = detail::kOnHost ? 1024 : 16384;
  double sum = 0.0;
  for (Index first = 0; first < length; first += kColumns) {
    T* block = x + first;
    const A block_sum =
        team.template sum<A>(Kokkos::min(kColumns, length - first), [&](Index i) {
          const A value = detail::exponential(static_cast<A>(block[i]) - maximum);
          if constexpr (!std::is_const_v<T>) block[i] = static_cast<T>(value);
          return value;
        });
    sum += static_cast<double>(block_sum);
  }
  return sum;
}

/// \brief loss() += the losses of the tokens, added in a fixed order.
void add_losses(const ExecSpace& exec, const DeviceView<const double, 1>& loss_C,
                const DeviceView<double, 0>& loss) {
  const Index tokens = loss_C.extent(0);
  detail::for_each_row(
      "pleat::kernels::cross_entropy::sum", exec, 1, tokens,
      KOKKOS_LAMBDA(const RowTeam& team, Index) {
        const double* token_loss = loss_C.data();
        const double sum =
            team.sum<double>(tokens, [&](Index c) { return token_loss[c]; });
        team.once([&] { loss() += sum; });
      });
}

}  // namespace

template <class T>
void cross_entropy_forward(const ExecSpace& exec, const DeviceView<const T, 2>& logits_CV,
                           const DeviceView<const std::int32_t, 1>& labels_C,
                           const DeviceView<const std::uint8_t, 1>& loss_mask_C,
                           Arena& scratch, const DeviceView<double, 0>& loss) {
  using A = Accumulator<T>;
  constexpr const char* kLabel = "pleat::kernels::cross_entropy_forward";
  const Index tokens = logits_CV.extent(0);
  const Index vocabulary = logits_CV.extent(1);
  check_extents(kLabel, "labels_C", labels_C, tokens);
  check_extents(kLabel, "loss_mask_C", loss_mask_C, tokens);
  const ArenaScope scope(scratch);
  const auto loss_C = scratch.take<double>(tokens);
  detail::for_each_row(
      kLabel, exec, tokens, vocabulary, KOKKOS_LAMBDA(const RowTeam& team, Index c) {
        double token_loss = 0.0;
        if (loss_mask_C(c) != 0) {
          const T* x = &logits_CV(c, 0);
          const A maximum = maximum_of<A>(team, x, vocabulary);
          const double sum = exponential_sum<A>(team, x, vocabulary, maximum);
          const A distance = maximum - static_cast<A>(x[labels_C(c)]);
          token_loss = static_cast<double>(distance) + Kokkos::log(sum);
        }
        team.once([&] { loss_C(c) = token_loss; });
      });
  add_losses(exec, loss_C, loss);
}

template <class T>
void cross_entropy_forward_backward(const ExecSpace& exec, double scale,
                                    const DeviceView<const std::int32_t, 1>& labels_C,
                                    const DeviceView<const std::uint8_t, 1>& loss_mask_C,
                                    Arena& scratch, const DeviceView<T, 2>& logits_CV,
                                    const DeviceView<double, 0>& loss) {
  using A = Accumulator<T>;
  constexpr const char* kLabel = "pleat::kernels::cross_entropy_forward_backward";
  const Index tokens = logits_CV.extent(0);
  const Index vocabulary = logits_CV.extent(1);
  check_extents(kLabel, "labels_C", labels_C, tokens);
  check_extents(kLabel, "loss_mask_C", loss_mask_C, tokens);
  const ArenaScope scope(scratch);
  const auto loss_C = scratch.take<double>(tokens);
  detail::for_each_row(
      kLabel, exec, tokens, vocabulary, KOKKOS_LAMBDA(const RowTeam& team, Index c) {
        T* x = &logits_CV(c, 0);
        if (loss_mask_C(c) == 0) {
          team.for_each(vocabulary, [&](Index v) { x[v] = T(0); });
          team.once([&] { loss_C(c) = 0.0; });
          return;
        }
        const Index label = labels_C(c);
        const A maximum = maximum_of<A>(team, x, vocabulary);
        const A distance = maximum - static_cast<A>(x[label]);
        team.barrier();
        const double sum = exponential_sum<A>(team, x, vocabulary, maximum);
        const double token_loss = static_cast<double>(distance) + Kokkos::log(sum);
        // p - 1 = -(1 - e^-loss), without cancellation where the token is nearly certain.
        const double label_gradient = scale * Kokkos::expm1(-token_loss);
        const A factor = static_cast<A>(scale / sum);
        team.for_each(vocabulary, [&](Index v) { x[v] = static_cast<T>(factor * x[v]); });
        team.barrier();
        team.once([&] {
          x[label] = static_cast<T>(label_gradient);
          loss_C(c) = token_loss;
        });
      });
  add_losses(exec, loss_C, loss);
}

#define PLEAT_INSTANTIATE_CROSS_ENTROPY(T)                                             \
  template void cross_entropy_forward<T>(                                              \
      const ExecSpace&, const DeviceView<const T, 2>&,                                 \
      const DeviceView<const std::int32_t, 1>&,                                        \
      const DeviceView<const std::uint8_t, 1>&, Arena&, const DeviceView<double, 0>&); \
  template void cross_entropy_forward_backward<T>(                                     \
      const ExecSpace&, double, const DeviceView<const std::int32_t, 1>&,              \
      const DeviceView<const std::uint8_t, 1>&, Arena&, const DeviceView<T, 2>&,       \
      const DeviceView<double, 0>&);

PLEAT_INSTANTIATE_CROSS_ENTROPY(float)
PLEAT_INSTANTIATE_CROSS_ENTROPY(double)
#undef PLEAT_INSTANTIATE_CROSS_ENTROPY

}  // namespace pleat::kernels
