// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/block.hpp"

#include "pleat/base/copy.hpp"
#include "pleat/kernels/rms_norm.hpp"

namespace pleat::model {

template <class T>
void block_forward(const Context& context, const BlockSetup<T>& setup, std::int64_t layer,
                   const MicroBatch& batch, const BlockTensors<T>& weights,
                   const DeviceView<T, 2>& x_TD, BlockActivations<T>& activations,
                   const LayerSums* sums, const DeviceView<T, 2>& y_TD) {
  const auto tokens = batch.tokens();
  const plan::ModelConfig& config = setup.part;
  activations.middle_TD = context.saved.take<T>(tokens, config.hidden);
  activations.inverse_rms_T = context.saved.take<Accumulator<T>>(tokens);
  activations.normed_TD = context.saved.take<T>(tokens, config.hidden);
  attention_forward<T>(context, setup.attention, batch, weights, x_TD,
                       activations.attention, activations.middle_TD);
  kernels::rms_norm_forward<T>(context.exec, activations.middle_TD, weights.ffn_norm_D,
                               config.norm_eps, activations.normed_TD,
                               activations.inverse_rms_T);
  copy_tensor(context.exec, y_TD, activations.middle_TD);
  if (config.moe_layer[static_cast<std::size_t>(layer)]) {
    moe_forward<T>(context, setup.moe, batch, weights, activations.normed_TD,
                   activations.moe, sums, y_TD);
  } else {
    const PhaseScope phase(context.times, Phase::kDenseFfn);
    feed_forward<T>(context, weights.dense, activations.normed_TD, activations.dense,
                    1, y_TD);
  }
}

template <class T>
void block_backward(const Context& context, const BlockSetup<T>& setup,
                    std::int64_t layer, const MicroBatch& batch,
                    const BlockTensors<T>& weights,
                    const BlockActivations<T>& activations, double router_loss_scale,
                    const BlockTensors<Gradient<T>>& gradients, const DeviceView<T, 2>& dx_TD) {
  const plan::ModelConfig& config = setup.part;
  {
    const ArenaScope scope(context.scratch);
    const auto dnormed_TD = context.scratch.take<T>(batch.tokens(), config.hidden);
    if (config.moe_layer[static_cast<std::size_t>(layer)]) {
      moe_backward<T>(context, setup.moe, batch, weights, activations.normed_TD,
                      activations.moe, router_loss_scale, dx_TD, gradients, dnormed_TD);
    } else {
      const PhaseScope phase(context.times, Phase::kDenseFfn);
      feed_forward_backward<T>(context, weights.dense, activations.normed_TD,
                               activations.dense, dx_TD, gradients.dense, 0,
                               dnormed_TD);
    }
    kernels::rms_norm_backward<T>(context.exec, activations.middle_TD, weights.ffn_norm_D,
                                  activations.inverse_rms_T, dnormed_TD, context.scratch,
                                  dx_TD, gradients.ffn_norm_D);
  }
  attention_backward<T>(context, setup.attention, batch, weights, activations.attention,
                        gradients, dx_TD);
}

#define PLEAT_INSTANTIATE(T)                                                          \
  template void block_forward<T>(const Context&, const BlockSetup<T>&, std::int64_t,  \
                                 const MicroBatch&, const BlockTensors<T>&,           \
                                 const DeviceView<T, 2>&, BlockActivations<T>&,       \
                                 const LayerSums*, const DeviceView<T, 2>&);          \
  template void block_backward<T>(const Context&, const BlockSetup<T>&, std::int64_t, \
                                  const MicroBatch&, const BlockTensors<T>&,          \
                                  const BlockActivations<T>&, double,                 \
                                  const BlockTensors<Gradient<T>>&,                   \
                                  const DeviceView<T, 2>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::model
