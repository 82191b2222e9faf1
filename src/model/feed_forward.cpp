// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/feed_forward.hpp"

#include "pleat/kernels/gemm.hpp"
#include "pleat/kernels/swiglu.hpp"

namespace pleat::model {
namespace {

using kernels::Transpose;

template <class T>
void project_up(const Context& context, const FeedForwardTensors<T>& weights,
                const DeviceView<const T, 2>& x_TD, Arena& arena,
                FeedForwardActivations<T>& activations) {
  activations.gate_up_T2F = arena.take<T>(x_TD.extent(0), weights.w13_2FD.extent(0));
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kYes, T(1), x_TD, weights.w13_2FD,
                   T(0), activations.gate_up_T2F);
}

}  // namespace

template <class T>
void feed_forward(const Context& context, const FeedForwardTensors<T>& weights,
                  const DeviceView<const T, 2>& x_TD, FeedForwardActivations<T>& activations,
                  T beta, const DeviceView<T, 2>& y_TD) {
  const ArenaScope scope(context.scratch);
  project_up<T>(context, weights, x_TD, context.inner(), activations);
  const auto h_TF = context.scratch.take<T>(x_TD.extent(0), weights.w2_DF.extent(1));
  kernels::swiglu_forward<T>(context.exec, activations.gate_up_T2F, {}, h_TF);
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kYes, T(1), h_TF, weights.w2_DF,
                   beta, y_TD);
}

template <class T>
void feed_forward_backward(const Context& context, const FeedForwardTensors<T>& weights,
                           const DeviceView<const T, 2>& x_TD,
                           const FeedForwardActivations<T>& activations,
                           const DeviceView<const T, 2>& dy_TD,
                           const FeedForwardTensors<T>& gradients, T beta,
                           const DeviceView<T, 2>& dx_TD) {
  const ArenaScope scope(context.scratch);
  FeedForwardActivations<T> known = activations;
  if (!context.keeps_inner()) project_up<T>(context, weights, x_TD, context.scratch, known);

  const auto dh_TF = context.scratch.take<T>(x_TD.extent(0), weights.w2_DF.extent(1));
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kNo, T(1), dy_TD, weights.w2_DF,
                   T(0), dh_TF);
  // In place: gate_up becomes its gradient, dh becomes h.
  kernels::swiglu_backward<T>(context.exec, known.gate_up_T2F, {}, dh_TF, known.gate_up_T2F,
                              dh_TF, {});
  const auto& dgate_up_T2F = known.gate_up_T2F;
  const auto& h_TF = dh_TF;
  kernels::gemm<T>(context.exec, Transpose::kYes, Transpose::kNo, T(1), dy_TD, h_TF, T(1),
                   gradients.w2_DF);
  kernels::gemm<T>(context.exec, Transpose::kYes, Transpose::kNo, T(1), dgate_up_T2F, x_TD,
                   T(1), gradients.w13_2FD);
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kNo, T(1), dgate_up_T2F,
                   weights.w13_2FD, beta, dx_TD);
}

#define PLEAT_INSTANTIATE(T)                                                                  \
  template void feed_forward<T>(const Context&, const FeedForwardTensors<T>&,                    \
                             const DeviceView<const T, 2>&, FeedForwardActivations<T>&, T,    \
                             const DeviceView<T, 2>&);                                        \
  template void feed_forward_backward<T>(                                                        \
      const Context&, const FeedForwardTensors<T>&, const DeviceView<const T, 2>&,            \
      const FeedForwardActivations<T>&, const DeviceView<const T, 2>&,                        \
      const FeedForwardTensors<T>&, T, const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::model
