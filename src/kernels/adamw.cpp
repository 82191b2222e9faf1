// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/adamw.hpp"

#include <cmath>

#include "rows.hpp"

namespace pleat::kernels {

using detail::check_extents;
using detail::Index;
using detail::RowTeam;

namespace {

constexpr const char* kLabel = "pleat::kernels::adamw_update";

/// \brief Of weights that the model has in the type of the masters: nothing to round. An overload,
/// since nvcc lets no device lambda capture what it names first inside `if constexpr`.
template <class T>
KOKKOS_FORCEINLINE_FUNCTION void store_rounded(T* /*rounded*/, Index /*i*/, T /*weight*/) {}

template <class T, class Rounded>
KOKKOS_FORCEINLINE_FUNCTION void store_rounded(Rounded* rounded, Index i, T weight) {
  rounded[i] = Rounded(weight);
}

/// \param rounded  N elements, unless it has the type of the weights
template <class T, class Rounded>
void update(const ExecSpace& exec, const AdamWOptions& options,
            const DeviceView<const double, 0>& gradient_scale,
            const DeviceView<const T, 1>& gradient_N, const DeviceView<T, 1>& m_N,
            const DeviceView<T, 1>& v_N, const DeviceView<T, 1>& w_N, Rounded* rounded) {
  constexpr Index kBlock = 4096;
  const Index count = w_N.extent(0);
  check_extents(kLabel, "gradient_N", gradient_N, count);
  check_extents(kLabel, "m_N", m_N, count);
  check_extents(kLabel, "v_N", v_N, count);
  PLEAT_ASSERT(options.step >= 1, "{}: steps count from 1, got {}", kLabel, options.step);
  // In fp64, since 1 - beta^n loses digits otherwise.
  const double step = static_cast<double>(options.step);
  const T beta1 = static_cast<T>(options.beta1);
  const T beta2 = static_cast<T>(options.beta2);
  const T rest1 = static_cast<T>(1.0 - options.beta1);
  const T rest2 = static_cast<T>(1.0 - options.beta2);
  const T rate =
      static_cast<T>(options.learning_rate / (1.0 - std::pow(options.beta1, step)));
  const T root = static_cast<T>(1.0 / std::sqrt(1.0 - std::pow(options.beta2, step)));
  // Not as a factor 1 - lr wd, which fp32 would round to a few digits of lr wd.
  const T decay = static_cast<T>(options.learning_rate * options.weight_decay);
  const T eps = static_cast<T>(options.eps);
  detail::for_each_row(
      kLabel, exec, detail::blocks_of(count, kBlock), kBlock,
      KOKKOS_LAMBDA(const RowTeam& team, Index block) {
        const Index first = block * kBlock;
        const T scale = static_cast<T>(gradient_scale());
        if (!Kokkos::isfinite(scale)) return;
        const T* gradient = gradient_N.data() + first;
        T* m = m_N.data() + first;
        T* v = v_N.data() + first;
        T* w = w_N.data() + first;
        team.for_each(Kokkos::min(kBlock, count - first), [&](Index i) {
          const T g = gradient[i] * scale;
          const T m_i = beta1 * m[i] + rest1 * g;
          const T v_i = beta2 * v[i] + rest2 * g * g;
          m[i] = m_i;
          v[i] = v_i;
          const T w_i =
              w[i] - (decay * w[i] + rate * m_i / (Kokkos::sqrt(v_i) * root + eps));
          w[i] = w_i;
          store_rounded(rounded, first + i, w_i);
        });
      });
}

}  // namespace

template <class T>
void adamw_update(const ExecSpace& exec, const AdamWOptions& options,
                  const DeviceView<const double, 0>& gradient_scale,
                  const DeviceView<const T, 1>& gradient_N, const DeviceView<T, 1>& m_N,
                  const DeviceView<T, 1>& v_N, const DeviceView<T, 1>& w_N) {
  update<T, T>(exec, options, gradient_scale, gradient_N, m_N, v_N, w_N, nullptr);
}

template <class T, class Narrow>
void adamw_update(const ExecSpace& exec, const AdamWOptions& options,
                  const DeviceView<const double, 0>& gradient_scale,
                  const DeviceView<const T, 1>& gradient_N, const DeviceView<T, 1>& m_N,
                  const DeviceView<T, 1>& v_N, const DeviceView<T, 1>& w_N,
                  const DeviceView<Narrow, 1>& rounded_N) {
  check_extents(kLabel, "rounded_N", rounded_N, w_N.extent(0));
  update<T, Narrow>(exec, options, gradient_scale, gradient_N, m_N, v_N, w_N,
                    rounded_N.data());
}

void clip_factor(const ExecSpace& exec, double clip,
                 const DeviceView<const double, 0>& sum_of_squares,
                 const DeviceView<double, 0>& norm, const DeviceView<double, 0>& scale) {
  Kokkos::parallel_for(
      "pleat::kernels::clip_factor", Kokkos::RangePolicy<ExecSpace>(exec, 0, 1),
      KOKKOS_LAMBDA(int) {
        norm() = Kokkos::sqrt(sum_of_squares());
        if (!Kokkos::isfinite(norm())) {
          scale() = norm();
        } else {
          scale() = clip > 0.0 ? Kokkos::min(1.0, clip / (norm() + 1.0e-6)) : 1.0;
        }
      });
}

#define PLEAT_INSTANTIATE_ADAMW(T)                                                      \
  template void adamw_update<T>(const ExecSpace&, const AdamWOptions&,                  \
                                const DeviceView<const double, 0>&,                     \
                                const DeviceView<const T, 1>&, const DeviceView<T, 1>&, \
                                const DeviceView<T, 1>&, const DeviceView<T, 1>&);

PLEAT_INSTANTIATE_ADAMW(float)
PLEAT_INSTANTIATE_ADAMW(double)
#undef PLEAT_INSTANTIATE_ADAMW
template void adamw_update<float, Bf16>(
    const ExecSpace&, const AdamWOptions&, const DeviceView<const double, 0>&,
    const DeviceView<const float, 1>&, const DeviceView<float, 1>&,
    const DeviceView<float, 1>&, const DeviceView<float, 1>&, const DeviceView<Bf16, 1>&);

}  // namespace pleat::kernels
