// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/attention.hpp"

#include <cmath>

#include "pleat/kernels/elementwise.hpp"
#include "pleat/kernels/gemm.hpp"
#include "pleat/kernels/rms_norm.hpp"

namespace pleat::model {
namespace {

using kernels::Transpose;

kernels::AttentionShape shape_of(const plan::ModelConfig& config, const MicroBatch& batch) {
  return {.batch = batch.sequences,
          .sequence = batch.sequence,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim};
}

template <class T>
Accumulator<T> scale_of(const plan::ModelConfig& config) {
  return static_cast<Accumulator<T>>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
}

/// q/k norm (keeping what it overwrites) and rotation, in place on qkv_TQ.
template <class T>
void condition_heads(const Context& context, const plan::ModelConfig& config,
                     const kernels::RopeTables<T>& rope, const MicroBatch& batch,
                     const BlockTensors<T>& weights, AttentionActivations<T>& activations) {
  const DeviceView<T, 2>& qkv_TQ = activations.qkv_TQ;
  if (config.qk_norm) {
    activations.raw_TQ = context.saved.take<T>(qkv_TQ.extent(0), qkv_TQ.extent(1));
    Kokkos::deep_copy(context.exec, activations.raw_TQ, qkv_TQ);
    kernels::head_rms_norm_forward<T>(context.exec, 0, config.heads, config.head_dim,
                                      weights.q_norm_d, config.norm_eps, qkv_TQ);
    kernels::head_rms_norm_forward<T>(context.exec, config.heads, config.kv_heads,
                                      config.head_dim, weights.k_norm_d, config.norm_eps,
                                      qkv_TQ);
  }
  kernels::rope_in_place<T>(context.exec, kernels::Rotation::kForward, rope, batch.sequence,
                            config.heads + config.kv_heads, config.head_dim, qkv_TQ);
}

/// The attention core; its results are kept, or computed again in the backward pass.
template <class T>
void attend(const Context& context, const plan::ModelConfig& config, const MicroBatch& batch,
            Arena& arena, AttentionActivations<T>& activations) {
  const auto tokens = batch.tokens();
  activations.o_TO = arena.take<T>(tokens, config.q_size());
  activations.lse_HT = arena.take<Accumulator<T>>(config.heads, tokens);
  kernels::attention_forward<T>(context.exec, shape_of(config, batch), scale_of<T>(config),
                                activations.qkv_TQ, context.scratch, activations.o_TO,
                                activations.lse_HT);
}

/// From the gradient of the attention core's output to that of the projection's output.
template <class T>
void heads_backward(const Context& context, const plan::ModelConfig& config,
                    const kernels::RopeTables<T>& rope, const MicroBatch& batch,
                    const BlockTensors<T>& weights, const AttentionActivations<T>& activations,
                    const DeviceView<T, 2>& do_TO, const BlockTensors<T>& gradients,
                    const DeviceView<T, 2>& dqkv_TQ) {
  kernels::attention_backward<T>(context.exec, shape_of(config, batch), scale_of<T>(config),
                                 activations.qkv_TQ, activations.o_TO, activations.lse_HT,
                                 do_TO, context.scratch, dqkv_TQ);
  kernels::rope_in_place<T>(context.exec, kernels::Rotation::kBackward, rope, batch.sequence,
                            config.heads + config.kv_heads, config.head_dim, dqkv_TQ);
  if (config.qk_norm) {
    kernels::head_rms_norm_backward<T>(context.exec, 0, config.heads, config.head_dim,
                                       weights.q_norm_d, config.norm_eps, activations.raw_TQ,
                                       context.scratch, dqkv_TQ, gradients.q_norm_d);
    kernels::head_rms_norm_backward<T>(context.exec, config.heads, config.kv_heads,
                                       config.head_dim, weights.k_norm_d, config.norm_eps,
                                       activations.raw_TQ, context.scratch, dqkv_TQ,
                                       gradients.k_norm_d);
  }
  if (config.qkv_bias) {
    kernels::add_bias_backward<T>(context.exec, dqkv_TQ, context.scratch, gradients.qkv_bias_Q);
  }
}

}  // namespace

template <class T>
void attention_forward(const Context& context, const plan::ModelConfig& config,
                       const kernels::RopeTables<T>& rope, const MicroBatch& batch,
                       const BlockTensors<T>& weights, const DeviceView<T, 2>& x_TD,
                       AttentionActivations<T>& activations, const DeviceView<T, 2>& y_TD) {
  const PhaseScope phase(context.times, Phase::kAttention);
  const auto tokens = batch.tokens();
  activations.x_TD = x_TD;
  activations.inverse_rms_T = context.saved.take<Accumulator<T>>(tokens);
  activations.normed_TD = context.saved.take<T>(tokens, config.hidden);
  activations.qkv_TQ = context.saved.take<T>(tokens, config.qkv_size());
  kernels::rms_norm_forward<T>(context.exec, x_TD, weights.attention_norm_D, config.norm_eps,
                               activations.normed_TD, activations.inverse_rms_T);
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kYes, T(1), activations.normed_TD,
                   weights.qkv_QD, T(0), activations.qkv_TQ);
  if (config.qkv_bias) {
    kernels::add_bias<T>(context.exec, weights.qkv_bias_Q, activations.qkv_TQ);
  }
  condition_heads<T>(context, config, rope, batch, weights, activations);

  const ArenaScope scope(context.scratch);
  attend<T>(context, config, batch, context.inner(), activations);
  Kokkos::deep_copy(context.exec, y_TD, x_TD);
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kYes, T(1), activations.o_TO,
                   weights.out_DO, T(1), y_TD);
}

template <class T>
void attention_backward(const Context& context, const plan::ModelConfig& config,
                        const kernels::RopeTables<T>& rope, const MicroBatch& batch,
                        const BlockTensors<T>& weights, const AttentionActivations<T>& activations,
                        const BlockTensors<T>& gradients, const DeviceView<T, 2>& dx_TD) {
  const PhaseScope phase(context.times, Phase::kAttention);
  const ArenaScope scope(context.scratch);
  const auto tokens = batch.tokens();
  AttentionActivations<T> known = activations;
  if (!context.keeps_inner()) attend<T>(context, config, batch, context.scratch, known);

  const auto dqkv_TQ = context.scratch.take<T>(tokens, config.qkv_size());
  const auto do_TO = context.scratch.take<T>(tokens, config.q_size());
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kNo, T(1), dx_TD, weights.out_DO,
                   T(0), do_TO);
  kernels::gemm<T>(context.exec, Transpose::kYes, Transpose::kNo, T(1), dx_TD, known.o_TO, T(1),
                   gradients.out_DO);
  heads_backward<T>(context, config, rope, batch, weights, known, do_TO, gradients, dqkv_TQ);

  const auto dnormed_TD = context.scratch.take<T>(tokens, config.hidden);
  kernels::gemm<T>(context.exec, Transpose::kYes, Transpose::kNo, T(1), dqkv_TQ,
                   known.normed_TD, T(1), gradients.qkv_QD);
  kernels::gemm<T>(context.exec, Transpose::kNo, Transpose::kNo, T(1), dqkv_TQ, weights.qkv_QD,
                   T(0), dnormed_TD);
  kernels::rms_norm_backward<T>(context.exec, known.x_TD, weights.attention_norm_D,
                                known.inverse_rms_T, dnormed_TD, context.scratch, dx_TD,
                                gradients.attention_norm_D);
}

#define PLEAT_INSTANTIATE(T)                                                                   \
  template void attention_forward<T>(                                                            \
      const Context&, const plan::ModelConfig&, const kernels::RopeTables<T>&,                 \
      const MicroBatch&, const BlockTensors<T>&, const DeviceView<T, 2>&,                      \
      AttentionActivations<T>&, const DeviceView<T, 2>&);                                      \
  template void attention_backward<T>(                                                           \
      const Context&, const plan::ModelConfig&, const kernels::RopeTables<T>&,                 \
      const MicroBatch&, const BlockTensors<T>&, const AttentionActivations<T>&,               \
      const BlockTensors<T>&, const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::model
