// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/cross_entropy.hpp"

#include "fast_math.hpp"
#include "rows.hpp"

namespace pleat::kernels {

using detail::check_extents;
using detail::Index;
using detail::RowTeam;

namespace {

/// \brief logsumexp of a row = maximum + log(sum), sum = sum of exp(x - maximum).
template <class A>
struct LogSumExp {
  A maximum;
  double sum;
  KOKKOS_FUNCTION double value() const {
    return static_cast<double>(maximum) + Kokkos::log(sum);
  }
};

/// \brief Maximum and sum of a row in one pass over memory: in blocks of columns that
/// stay in the cache, with the sum so far rescaled when the maximum grows. The blocks'
/// sums are added in fp64, which keeps the error of large vocabularies at that of one
/// block.
template <class A, class T>
KOKKOS_FORCEINLINE_FUNCTION LogSumExp<A> log_sum_exp(const RowTeam& team, const T* x,
                                                     Index length) {
  constexpr Index kColumns = detail::kOnHost ? 1024 : 16384;
  constexpr A kLowest = Kokkos::Experimental::finite_min_v<A>;
  LogSumExp<A> row{kLowest, 0.0};
  for (Index first = 0; first < length; first += kColumns) {
    const Index count = length - first < kColumns ? length - first : kColumns;
    const T* block = x + first;
    const A maximum = team.template maximum<A>(
        count, row.maximum, [&](Index i) { return static_cast<A>(block[i]); });
    const A sum = team.template sum<A>(count, [&](Index i) {
      return detail::exponential(static_cast<A>(block[i]) - maximum);
    });
    row.sum = row.sum * Kokkos::exp(static_cast<double>(row.maximum - maximum)) +
              static_cast<double>(sum);
    row.maximum = maximum;
  }
  return row;
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
          const LogSumExp<A> row = log_sum_exp<A>(team, &logits_CV(c, 0), vocabulary);
          token_loss = row.value() - static_cast<double>(logits_CV(c, labels_C(c)));
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
        const LogSumExp<A> row = log_sum_exp<A>(team, x, vocabulary);
        const Index label = labels_C(c);
        const double label_logit = static_cast<double>(x[label]);
        const double token_loss = row.value() - label_logit;
        // p - 1 = -(1 - e^-loss), without cancellation where the token is nearly certain.
        const double label_gradient = scale * Kokkos::expm1(-token_loss);
        const A maximum = row.maximum;
        const A factor = static_cast<A>(scale / row.sum);
        team.barrier();
        team.for_each(vocabulary, [&](Index v) {
          x[v] = static_cast<T>(factor *
                                detail::exponential(static_cast<A>(x[v]) - maximum));
        });
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
