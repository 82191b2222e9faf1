// SPDX-License-Identifier: Apache-2.0
#include "pleat/kernels/swiglu.hpp"

#include "fast_math.hpp"
#include "rows.hpp"

namespace pleat::kernels {

using detail::check_extents;
using detail::Index;
using detail::RowTeam;

template <class T>
void swiglu_forward(const ExecSpace& exec, const DeviceView<const T, 2>& gate_up_R2F,
                    const DeviceView<const Accumulator<T>, 1>& weight_R,
                    const DeviceView<T, 2>& h_RF) {
  using A = Accumulator<T>;
  constexpr const char* kLabel = "pleat::kernels::swiglu_forward";
  const Index rows = h_RF.extent(0);
  const Index ffn = h_RF.extent(1);
  const bool weighted = weight_R.data() != nullptr;
  check_extents(kLabel, "gate_up_R2F", gate_up_R2F, rows, 2 * ffn);
  if (weighted) check_extents(kLabel, "weight_R", weight_R, rows);
  detail::for_each_row(
      kLabel, exec, rows, ffn, KOKKOS_LAMBDA(const RowTeam& team, Index r) {
        const T* gate = &gate_up_R2F(r, 0);
        const T* up = gate + ffn;
        T* h = &h_RF(r, 0);
        const A weight = weighted ? weight_R(r) : A(1);
        team.fetch(gate + 2 * ffn, 2 * ffn);  // the next row
        team.for_each(ffn, [&](Index f) {
          const A g = static_cast<A>(gate[f]);
          h[f] = static_cast<T>(g * detail::sigmoid(g) * static_cast<A>(up[f]) * weight);
        });
      });
}

// With s = sigmoid(g), a = silu(g) = g s and h = weight a u:
//   du = weight dh a,   dg = weight dh u (s + a (1 - s)),   dweight = sum_f dh a u.
template <class T>
void swiglu_backward(const ExecSpace& exec, const DeviceView<const T, 2>& gate_up_R2F,
                     const DeviceView<const Accumulator<T>, 1>& weight_R,
                     const DeviceView<const T, 2>& dh_RF,
                     const DeviceView<T, 2>& dgate_up_R2F, const DeviceView<T, 2>& h_RF,
                     const DeviceView<Accumulator<T>, 1>& dweight_R) {
  using A = Accumulator<T>;
  constexpr const char* kLabel = "pleat::kernels::swiglu_backward";
  const Index rows = h_RF.extent(0);
  const Index ffn = h_RF.extent(1);
  const bool weighted = weight_R.data() != nullptr;
  check_extents(kLabel, "gate_up_R2F", gate_up_R2F, rows, 2 * ffn);
  check_extents(kLabel, "dh_RF", dh_RF, rows, ffn);
  check_extents(kLabel, "dgate_up_R2F", dgate_up_R2F, rows, 2 * ffn);
  if (weighted) {
    check_extents(kLabel, "weight_R", weight_R, rows);
    check_extents(kLabel, "dweight_R", dweight_R, rows);
  }
  detail::for_each_row(
      kLabel, exec, rows, ffn, KOKKOS_LAMBDA(const RowTeam& team, Index r) {
        const T* gate = &gate_up_R2F(r, 0);
        const T* up = gate + ffn;
        const T* dh = &dh_RF(r, 0);
        T* dgate = &dgate_up_R2F(r, 0);
        T* dup = dgate + ffn;
        T* h = &h_RF(r, 0);
        const A weight = weighted ? weight_R(r) : A(1);
        team.fetch(gate + 2 * ffn, 2 * ffn);  // the next row
        team.fetch(dh + ffn, ffn);
        // Each element is read before it is written: outputs may lie on inputs.
        const A dweight = team.sum<A>(ffn, [&](Index f) {
          const A g = static_cast<A>(gate[f]);
          const A u = static_cast<A>(up[f]);
          const A dh_f = static_cast<A>(dh[f]);
          const A s = detail::sigmoid(g);
          const A a = g * s;
          const A scaled = weight * dh_f;
          dgate[f] = static_cast<T>(scaled * u * (s + a * (A(1) - s)));
          dup[f] = static_cast<T>(scaled * a);
          h[f] = static_cast<T>(weight * a * u);
          return dh_f * a * u;
        });
        if (weighted) team.once([&] { dweight_R(r) = dweight; });
      });
}

#define PLEAT_INSTANTIATE_SWIGLU(T)                                                  \
  template void swiglu_forward<T>(const ExecSpace&, const DeviceView<const T, 2>&,   \
                                  const DeviceView<const Accumulator<T>, 1>&,        \
                                  const DeviceView<T, 2>&);                          \
  template void swiglu_backward<T>(const ExecSpace&, const DeviceView<const T, 2>&,  \
                                   const DeviceView<const Accumulator<T>, 1>&,       \
                                   const DeviceView<const T, 2>&,                    \
                                   const DeviceView<T, 2>&, const DeviceView<T, 2>&, \
                                   const DeviceView<Accumulator<T>, 1>&);

PLEAT_INSTANTIATE_SWIGLU(float)
PLEAT_INSTANTIATE_SWIGLU(double)
PLEAT_INSTANTIATE_SWIGLU(Bf16)
#undef PLEAT_INSTANTIATE_SWIGLU

}  // namespace pleat::kernels
