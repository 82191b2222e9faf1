// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/attention.hpp"

#include "pleat/base/copy.hpp"
#include "pleat/kernels/elementwise.hpp"
#include "pleat/kernels/gemm.hpp"
#include "pleat/kernels/rms_norm.hpp"
#include "pleat/model/context_attention.hpp"
#include "pleat/model/tensor_rows.hpp"

namespace pleat::model {
namespace {

using kernels::Transpose;

/// q/k norm (keeping what it overwrites) and rotation, in place on qkv_UQ.
template <class T>
void condition_heads(const Context& context, const AttentionSetup<T>& setup,
                     const MicroBatch& batch, const BlockTensors<T>& weights,
                     AttentionActivations<T>& activations) {
  const plan::ModelConfig& part = setup.part;
  const DeviceView<T, 2>& qkv_UQ = activations.qkv_UQ;
  if (part.qk_norm) {
    activations.raw_UQ = context.saved.take<T>(qkv_UQ.extent(0), qkv_UQ.extent(1));
    copy_tensor(context.exec, activations.raw_UQ, qkv_UQ);
    kernels::head_rms_norm_forward<T>(context.exec, 0, part.heads, part.head_dim,
                                      weights.q_norm_d, part.norm_eps, qkv_UQ);
    kernels::head_rms_norm_forward<T>(context.exec, part.heads, part.kv_heads, part.head_dim,
                                      weights.k_norm_d, part.norm_eps, qkv_UQ);
  }
  kernels::rope_in_place<T>(context.exec, kernels::Rotation::kForward, setup.rope,
                            batch.sequence, part.heads + part.kv_heads, part.head_dim, qkv_UQ);
}

/// The attention core; its results are kept, or computed again in the backward pass.
template <class T>
void run_core(const Context& context, const AttentionSetup<T>& setup, const MicroBatch& batch,
              Arena& arena, AttentionActivations<T>& activations) {
  const auto rows = batch.gathered_tokens();
  activations.o_UO = arena.take<T>(rows, setup.part.q_size());
  activations.lse_HU = arena.take<Accumulator<T>>(setup.part.heads, rows);
  attend<T>(context, setup.part, batch, setup.exchange, activations.qkv_UQ, activations.o_UO,
            activations.lse_HU);
}

/// From the gradient of the attention core's output to that of the projection's output.
template <class T>
void heads_backward(const Context& context, const AttentionSetup<T>& setup,
                    const MicroBatch& batch, const BlockTensors<T>& weights,
                    const AttentionActivations<T>& activations, const DeviceView<T, 2>& do_UO,
                    const BlockTensors<Gradient<T>>& gradients, const DeviceView<T, 2>& dqkv_UQ) {
  const plan::ModelConfig& part = setup.part;
  attend_backward<T>(context, part, batch, setup.exchange, activations.qkv_UQ,
                     activations.o_UO, activations.lse_HU, do_UO, dqkv_UQ);
  kernels::rope_in_place<T>(context.exec, kernels::Rotation::kBackward, setup.rope,
                            batch.sequence, part.heads + part.kv_heads, part.head_dim, dqkv_UQ);
  if (part.qk_norm) {
    kernels::head_rms_norm_backward<T>(context.exec, 0, part.heads, part.head_dim,
                                       weights.q_norm_d, part.norm_eps, activations.raw_UQ,
                                       context.scratch, dqkv_UQ, gradients.q_norm_d);
    kernels::head_rms_norm_backward<T>(context.exec, part.heads, part.kv_heads, part.head_dim,
                                       weights.k_norm_d, part.norm_eps, activations.raw_UQ,
                                       context.scratch, dqkv_UQ, gradients.k_norm_d);
  }
  if (part.qkv_bias) {
    kernels::add_bias_backward<T>(context.exec, dqkv_UQ, context.scratch, gradients.qkv_bias_Q);
  }
}

}  // namespace

template <class T>
void attention_forward(const Context& context, const AttentionSetup<T>& setup,
                       const MicroBatch& batch, const BlockTensors<T>& weights,
                       const DeviceView<T, 2>& x_TD, AttentionActivations<T>& activations,
                       const DeviceView<T, 2>& y_TD) {
  const PhaseScope phase(context.times, Phase::kAttention);
  const plan::ModelConfig& part = setup.part;
  activations.x_TD = x_TD;
  activations.inverse_rms_T = context.saved.take<Accumulator<T>>(batch.tokens());
  activations.normed_TD = context.saved.take<T>(batch.tokens(), part.hidden);
  activations.qkv_UQ = context.saved.take<T>(batch.gathered_tokens(), part.qkv_size());
  kernels::rms_norm_forward<T>(context.exec, x_TD, weights.attention_norm_D, part.norm_eps,
                               activations.normed_TD, activations.inverse_rms_T);
  {
    const ArenaScope scope(context.scratch);
    const auto normed_UD = gather_rows<T>(context, activations.normed_TD, context.scratch);
    kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kYes, 1, normed_UD,
                     weights.qkv_QD, 0, activations.qkv_UQ);
  }
  if (part.qkv_bias) {
    kernels::add_bias<T>(context.exec, weights.qkv_bias_Q, activations.qkv_UQ);
  }
  condition_heads<T>(context, setup, batch, weights, activations);

  const ArenaScope scope(context.scratch);
  run_core<T>(context, setup, batch, context.inner(), activations);
  copy_tensor(context.exec, y_TD, x_TD);
  const RowSum<T> sum(context, 1, y_TD);
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kYes, 1, activations.o_UO,
                   weights.out_DO, sum.beta(), sum.target_UD());
  sum.finish();
}

template <class T>
void attention_backward(const Context& context, const AttentionSetup<T>& setup,
                        const MicroBatch& batch, const BlockTensors<T>& weights,
                        const AttentionActivations<T>& activations,
                        const BlockTensors<Gradient<T>>& gradients, const DeviceView<T, 2>& dx_TD) {
  const PhaseScope phase(context.times, Phase::kAttention);
  const ArenaScope scope(context.scratch);
  const plan::ModelConfig& part = setup.part;
  const auto rows = batch.gathered_tokens();
  AttentionActivations<T> known = activations;
  if (!context.keeps_inner()) run_core<T>(context, setup, batch, context.scratch, known);

  const auto dqkv_UQ = context.scratch.take<T>(rows, part.qkv_size());
  {
    const ArenaScope outputs(context.scratch);
    const auto dy_UD = gather_rows<T>(context, dx_TD, context.scratch);
    const auto do_UO = context.scratch.take<T>(rows, part.q_size());
    kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kNo, 1, dy_UD, weights.out_DO,
                     0, do_UO);
    kernels::gemm<T, Gradient<T>>(context.exec, Transpose::kYes, Transpose::kNo, 1, dy_UD, known.o_UO,
                                  context.gradient_beta(), gradients.out_DO);
    heads_backward<T>(context, setup, batch, weights, known, do_UO, gradients, dqkv_UQ);
  }
  const auto dnormed_TD = context.scratch.take<T>(batch.tokens(), part.hidden);
  const auto normed_UD = gather_rows<T>(context, known.normed_TD, context.scratch);
  kernels::gemm<T, Gradient<T>>(context.exec, Transpose::kYes, Transpose::kNo, 1, dqkv_UQ, normed_UD,
                                context.gradient_beta(), gradients.qkv_QD);
  {
    const RowSum<T> sum(context, 0, dnormed_TD);
    kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kNo, 1, dqkv_UQ,
                     weights.qkv_QD, sum.beta(), sum.target_UD());
    sum.finish();
  }
  kernels::rms_norm_backward<T>(context.exec, known.x_TD, weights.attention_norm_D,
                                known.inverse_rms_T, dnormed_TD, context.scratch, dx_TD,
                                gradients.attention_norm_D);
}

#define PLEAT_INSTANTIATE(T)                                                               \
  template void attention_forward<T>(const Context&, const AttentionSetup<T>&,             \
                                     const MicroBatch&, const BlockTensors<T>&,            \
                                     const DeviceView<T, 2>&, AttentionActivations<T>&,    \
                                     const DeviceView<T, 2>&);                             \
  template void attention_backward<T>(                                                     \
      const Context&, const AttentionSetup<T>&, const MicroBatch&, const BlockTensors<T>&, \
      const AttentionActivations<T>&, const BlockTensors<Gradient<T>>&,                    \
      const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::model
