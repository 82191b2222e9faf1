// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/feed_forward.hpp"

#include "pleat/kernels/gemm.hpp"
#include "pleat/kernels/swiglu.hpp"
#include "pleat/model/tensor_rows.hpp"

namespace pleat::model {
namespace {

using kernels::Transpose;

template <class T>
void project_up(const Context& context, const FeedForwardTensors<T>& weights,
                const DeviceView<const T, 2>& x_UD,
                const FeedForwardActivations<T>& activations) {
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kYes, 1, x_UD, weights.w13_2FD,
                   0, activations.gate_up_U2F);
}

/// As many rows as the tensor ranks have together.
template <class T>
std::size_t gathered_rows(const Context& context, const DeviceView<const T, 2>& x_TD) {
  return x_TD.extent(0) * static_cast<std::size_t>(context.grid.degree(comm::Axis::kTensor));
}

}  // namespace

template <class T>
void feed_forward(const Context& context, const FeedForwardTensors<T>& weights,
                  const DeviceView<const T, 2>& x_TD, FeedForwardActivations<T>& activations,
                  Accumulator<T> beta, const DeviceView<T, 2>& y_TD) {
  const ArenaScope scope(context.scratch);
  // Kept memory is taken before any scratch, so that this also holds when both are one arena.
  activations.gate_up_U2F =
      context.inner().take<T>(gathered_rows<T>(context, x_TD), weights.w13_2FD.extent(0));
  project_up<T>(context, weights, gather_rows<T>(context, x_TD, context.scratch), activations);
  const auto& gate_up_U2F = activations.gate_up_U2F;
  const auto h_UF = context.scratch.take<T>(gate_up_U2F.extent(0), weights.w2_DF.extent(1));
  kernels::swiglu_forward<T>(context.exec, gate_up_U2F, {}, h_UF);
  const RowSum<T> sum(context, beta, y_TD);
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kYes, 1, h_UF, weights.w2_DF,
                   sum.beta(), sum.target_UD());
  sum.finish();
}

template <class T>
void feed_forward_backward(const Context& context, const FeedForwardTensors<T>& weights,
                           const DeviceView<const T, 2>& x_TD,
                           const FeedForwardActivations<T>& activations,
                           const DeviceView<const T, 2>& dy_TD,
                           const FeedForwardTensors<Gradient<T>>& gradients,
                           Accumulator<T> beta, const DeviceView<T, 2>& dx_TD) {
  const ArenaScope scope(context.scratch);
  FeedForwardActivations<T> known = activations;
  const auto x_UD = gather_rows<T>(context, x_TD, context.scratch);
  const auto dy_UD = gather_rows<T>(context, dy_TD, context.scratch);
  if (!context.keeps_inner()) {
    known.gate_up_U2F = context.scratch.take<T>(x_UD.extent(0), weights.w13_2FD.extent(0));
    project_up<T>(context, weights, x_UD, known);
  }
  const auto dh_UF = context.scratch.take<T>(x_UD.extent(0), weights.w2_DF.extent(1));
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kNo, 1, dy_UD, weights.w2_DF,
                   0, dh_UF);
  // In place: gate_up becomes its gradient, dh becomes h.
  kernels::swiglu_backward<T>(context.exec, known.gate_up_U2F, {}, dh_UF, known.gate_up_U2F,
                              dh_UF, {});
  const auto& dgate_up_U2F = known.gate_up_U2F;
  const auto& h_UF = dh_UF;
  kernels::gemm<T, Gradient<T>>(context.exec, Transpose::kYes, Transpose::kNo, 1, dy_UD, h_UF,
                                context.gradient_beta(), gradients.w2_DF);
  kernels::gemm<T, Gradient<T>>(context.exec, Transpose::kYes, Transpose::kNo, 1, dgate_up_U2F,
                                x_UD, context.gradient_beta(), gradients.w13_2FD);
  const RowSum<T> sum(context, beta, dx_TD);
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kNo, 1, dgate_up_U2F,
                   weights.w13_2FD, sum.beta(), sum.target_UD());
  sum.finish();
}

#define PLEAT_INSTANTIATE(T)                                                                  \
  template void feed_forward<T>(const Context&, const FeedForwardTensors<T>&,                    \
                                const DeviceView<const T, 2>&, FeedForwardActivations<T>&,    \
                                Accumulator<T>, const DeviceView<T, 2>&);                     \
  template void feed_forward_backward<T>(                                                        \
      const Context&, const FeedForwardTensors<T>&, const DeviceView<const T, 2>&,            \
      const FeedForwardActivations<T>&, const DeviceView<const T, 2>&,                        \
      const FeedForwardTensors<Gradient<T>>&, Accumulator<T>, const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::model
