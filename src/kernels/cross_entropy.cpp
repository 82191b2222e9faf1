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

/// \brief logsumexp - label's logit, where `sum` is of exp(logit - maximum).
template <class A>
KOKKOS_FORCEINLINE_FUNCTION double loss_of_token(A maximum, A label_logit, double sum) {
  return static_cast<double>(maximum - label_logit) + Kokkos::log(sum);
}

/// \brief p - 1 = -(1 - e^-loss), without cancellation where the token is nearly certain.
KOKKOS_FORCEINLINE_FUNCTION double label_gradient(double scale, double token_loss) {
  return scale * Kokkos::expm1(-token_loss);
}

/// \brief Whether a column of the slice exists.
KOKKOS_FORCEINLINE_FUNCTION bool is_column(Index column, Index columns) {
  return column >= 0 && column < columns;
}

/// \brief The start of a row, which may be empty.
template <class View>
KOKKOS_FORCEINLINE_FUNCTION auto row_of(const View& logits_CV, Index c) {
  return logits_CV.data() + c * static_cast<Index>(logits_CV.stride(0));
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
          token_loss = loss_of_token(maximum, static_cast<A>(x[labels_C(c)]), sum);
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
        const A label_logit = static_cast<A>(x[label]);
        team.barrier();
        const double sum = exponential_sum<A>(team, x, vocabulary, maximum);
        const double token_loss = loss_of_token(maximum, label_logit, sum);
        const A factor = static_cast<A>(scale / sum);
        team.for_each(vocabulary, [&](Index v) { x[v] = static_cast<T>(factor * x[v]); });
        team.barrier();
        team.once([&] {
          x[label] = static_cast<T>(label_gradient(scale, token_loss));
          loss_C(c) = token_loss;
        });
      });
  add_losses(exec, loss_C, loss);
}

template <class T>
void cross_entropy_max(const ExecSpace& exec, const DeviceView<const T, 2>& logits_CV,
                       const DeviceView<Accumulator<T>, 1>& max_C) {
  using A = Accumulator<T>;
  constexpr const char* kLabel = "pleat::kernels::cross_entropy_max";
  const Index tokens = logits_CV.extent(0);
  const Index entries = logits_CV.extent(1);
  check_extents(kLabel, "max_C", max_C, tokens);
  detail::for_each_row(
      kLabel, exec, tokens, entries, KOKKOS_LAMBDA(const RowTeam& team, Index c) {
        const A maximum = maximum_of<A>(team, row_of(logits_CV, c), entries);
        team.once([&] { max_C(c) = maximum; });
      });
}

template <class T>
void cross_entropy_sums(const ExecSpace& exec, std::int64_t first_entry,
                        const DeviceView<const T, 2>& logits_CV,
                        const DeviceView<const std::int32_t, 1>& labels_C,
                        const DeviceView<const Accumulator<T>, 1>& max_C,
                        const DeviceView<Accumulator<T>, 2>& sums_C2) {
  using A = Accumulator<T>;
  constexpr const char* kLabel = "pleat::kernels::cross_entropy_sums";
  const Index tokens = logits_CV.extent(0);
  const Index entries = logits_CV.extent(1);
  check_extents(kLabel, "labels_C", labels_C, tokens);
  check_extents(kLabel, "max_C", max_C, tokens);
  check_extents(kLabel, "sums_C2", sums_C2, tokens, 2);
  detail::for_each_row(
      kLabel, exec, tokens, entries, KOKKOS_LAMBDA(const RowTeam& team, Index c) {
        const T* x = row_of(logits_CV, c);
        const double sum = exponential_sum<A>(team, x, entries, max_C(c));
        const Index label = labels_C(c) - first_entry;
        team.once([&] {
          sums_C2(c, 0) = static_cast<A>(sum);
          sums_C2(c, 1) = is_column(label, entries) ? static_cast<A>(x[label]) : A(0);
        });
      });
}

template <class T>
void cross_entropy_loss(const ExecSpace& exec,
                        const DeviceView<const Accumulator<T>, 1>& max_C,
                        const DeviceView<const Accumulator<T>, 2>& sums_C2,
                        const DeviceView<const std::uint8_t, 1>& loss_mask_C,
                        Arena& scratch, const DeviceView<double, 0>& loss) {
  constexpr const char* kLabel = "pleat::kernels::cross_entropy_loss";
  const Index tokens = max_C.extent(0);
  check_extents(kLabel, "sums_C2", sums_C2, tokens, 2);
  check_extents(kLabel, "loss_mask_C", loss_mask_C, tokens);
  const ArenaScope scope(scratch);
  const auto loss_C = scratch.take<double>(tokens);
  Kokkos::parallel_for(
      kLabel, Kokkos::RangePolicy<ExecSpace>(exec, 0, tokens),
      KOKKOS_LAMBDA(const Index c) {
        loss_C(c) = loss_mask_C(c) == 0
                        ? 0.0
                        : loss_of_token(max_C(c), sums_C2(c, 1), sums_C2(c, 0));
      });
  add_losses(exec, loss_C, loss);
}

template <class T>
void cross_entropy_gradient(const ExecSpace& exec, double scale, std::int64_t first_entry,
                            const DeviceView<const std::int32_t, 1>& labels_C,
                            const DeviceView<const std::uint8_t, 1>& loss_mask_C,
                            const DeviceView<const Accumulator<T>, 1>& max_C,
                            const DeviceView<const Accumulator<T>, 2>& sums_C2,
                            const DeviceView<T, 2>& logits_CV) {
  using A = Accumulator<T>;
  constexpr const char* kLabel = "pleat::kernels::cross_entropy_gradient";
  const Index tokens = logits_CV.extent(0);
  const Index entries = logits_CV.extent(1);
  check_extents(kLabel, "labels_C", labels_C, tokens);
  check_extents(kLabel, "loss_mask_C", loss_mask_C, tokens);
  check_extents(kLabel, "max_C", max_C, tokens);
  check_extents(kLabel, "sums_C2", sums_C2, tokens, 2);
  detail::for_each_row(
      kLabel, exec, tokens, entries, KOKKOS_LAMBDA(const RowTeam& team, Index c) {
        T* x = row_of(logits_CV, c);
        if (loss_mask_C(c) == 0) {
          team.for_each(entries, [&](Index v) { x[v] = T(0); });
          return;
        }
        const A maximum = max_C(c);
        const double sum = sums_C2(c, 0);
        const A factor = static_cast<A>(scale / sum);
        team.for_each(entries, [&](Index v) {
          x[v] = static_cast<T>(factor *
                                detail::exponential(static_cast<A>(x[v]) - maximum));
        });
        const Index label = labels_C(c) - first_entry;
        if (!is_column(label, entries)) return;
        const double token_loss = loss_of_token(maximum, sums_C2(c, 1), sum);
        team.barrier();
        team.once([&] { x[label] = static_cast<T>(label_gradient(scale, token_loss)); });
      });
}

#define PLEAT_INSTANTIATE_CROSS_ENTROPY(T)                                               \
  template void cross_entropy_forward<T>(                                                \
      const ExecSpace&, const DeviceView<const T, 2>&,                                   \
      const DeviceView<const std::int32_t, 1>&,                                          \
      const DeviceView<const std::uint8_t, 1>&, Arena&, const DeviceView<double, 0>&);   \
  template void cross_entropy_forward_backward<T>(                                       \
      const ExecSpace&, double, const DeviceView<const std::int32_t, 1>&,                \
      const DeviceView<const std::uint8_t, 1>&, Arena&, const DeviceView<T, 2>&,         \
      const DeviceView<double, 0>&);                                                     \
  template void cross_entropy_max<T>(const ExecSpace&, const DeviceView<const T, 2>&,    \
                                     const DeviceView<Accumulator<T>, 1>&);              \
  template void cross_entropy_sums<T>(                                                   \
      const ExecSpace&, std::int64_t, const DeviceView<const T, 2>&,                     \
      const DeviceView<const std::int32_t, 1>&,                                          \
      const DeviceView<const Accumulator<T>, 1>&, const DeviceView<Accumulator<T>, 2>&); \
  template void cross_entropy_loss<T>(                                                   \
      const ExecSpace&, const DeviceView<const Accumulator<T>, 1>&,                      \
      const DeviceView<const Accumulator<T>, 2>&,                                        \
      const DeviceView<const std::uint8_t, 1>&, Arena&, const DeviceView<double, 0>&);   \
  template void cross_entropy_gradient<T>(                                               \
      const ExecSpace&, double, std::int64_t, const DeviceView<const std::int32_t, 1>&,  \
      const DeviceView<const std::uint8_t, 1>&,                                          \
      const DeviceView<const Accumulator<T>, 1>&,                                        \
      const DeviceView<const Accumulator<T>, 2>&, const DeviceView<T, 2>&);

PLEAT_INSTANTIATE_CROSS_ENTROPY(float)
PLEAT_INSTANTIATE_CROSS_ENTROPY(double)
#undef PLEAT_INSTANTIATE_CROSS_ENTROPY

}  // namespace pleat::kernels
