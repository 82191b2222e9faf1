// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The Mixture-of-Experts layer: router, dispatcher, experts through grouped GEMMs,
/// shared expert, and the router's losses.
///
/// Legend: T tokens, D hidden, E experts, K experts per token, R rows at the experts, F ffn,
/// G groups of the load-balancing loss, L layers.

#include "pleat/kernels/router.hpp"
#include "pleat/model/context.hpp"
#include "pleat/model/dispatcher.hpp"
#include "pleat/model/feed_forward.hpp"
#include "pleat/model/parameters.hpp"

namespace pleat::model {

template <class T>
struct MoeActivations {
  DeviceView<Accumulator<T>, 2> logits_TE;
  DeviceView<Accumulator<T>, 2> scores_TE;
  DeviceView<std::int32_t, 2> index_TK;
  DeviceView<Accumulator<T>, 2> weight_TK;
  kernels::RouterStatistics<Accumulator<T>> statistics;
  DispatchRecord record;
  DeviceView<Accumulator<T>, 1> weight_R;
  DeviceView<T, 2> gate_up_R2F;
  FeedForwardActivations<T> shared;
  DeviceView<T, 2> shared_gate_T1;
  DeviceView<T, 2> shared_out_TD;
};

/// \brief Where a layer adds its share of the step's sums.
struct RouterSums {
  DeviceView<double, 1> losses;   ///< [2] load-balancing loss, z-loss
  DeviceView<double, 1> counts_E; ///< (token, choice) pairs per expert
};

/// \brief y_TD += moe(x_TD), x_TD being normed. `sums` is null when a block is computed again:
/// then nothing is counted twice.
template <class T>
void moe_forward(const Context& context, const plan::ModelConfig& config,
                 const Dispatcher<T>& dispatcher, const MicroBatch& batch,
                 const BlockTensors<T>& weights, const DeviceView<const T, 2>& x_TD,
                 MoeActivations<T>& activations, const RouterSums* sums,
                 const DeviceView<T, 2>& y_TD);

/// \brief dx_TD (overwritten) from dy_TD; gradients accumulate.
/// \param router_loss_scale  weight of this micro-batch's router losses in the step's loss
template <class T>
void moe_backward(const Context& context, const plan::ModelConfig& config,
                  const Dispatcher<T>& dispatcher, const MicroBatch& batch,
                  const BlockTensors<T>& weights, const DeviceView<const T, 2>& x_TD,
                  const MoeActivations<T>& activations, double router_loss_scale,
                  const DeviceView<const T, 2>& dy_TD, const BlockTensors<T>& gradients,
                  const DeviceView<T, 2>& dx_TD);

}  // namespace pleat::model
