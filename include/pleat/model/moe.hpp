// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The Mixture-of-Experts layer: router, dispatcher, experts through grouped GEMMs,
/// shared expert, and the router's losses.
///
/// Legend: T tokens of this rank, D hidden, E experts, K experts per token, R rows at this
/// rank's experts, F ffn of its part of an expert, G groups of the load-balancing loss.

#include "pleat/kernels/router.hpp"
#include "pleat/model/context.hpp"
#include "pleat/model/dispatcher.hpp"
#include "pleat/model/feed_forward.hpp"
#include "pleat/model/parameters.hpp"
#include "pleat/model/step_sums.hpp"

namespace pleat::model {

template <class T>
struct MoeActivations {
  DeviceView<Accumulator<T>, 2> logits_TE;
  DeviceView<Accumulator<T>, 2> scores_TE;
  DeviceView<std::int32_t, 2> index_TK;
  DeviceView<Accumulator<T>, 2> weight_TK;
  DeviceView<std::int32_t, 2> sent_TK;  ///< index_TK without what was dropped
  kernels::RouterStatistics<Accumulator<T>> statistics;  ///< of all ranks of the scope
  DispatchRecord record;
  DeviceView<Accumulator<T>, 1> weight_R;
  DeviceView<T, 2> gate_up_R2F;
  FeedForwardActivations<T> shared;
  DeviceView<T, 2> shared_gate_T1;
  DeviceView<T, 2> shared_out_TD;
};

/// \brief What the MoE layers have in common.
template <class T>
struct MoeSetup {
  const plan::ModelConfig& part;  ///< with this rank's ffn
  const Dispatcher<T>& dispatcher;
};

/// \brief y_TD += moe(x_TD), x_TD being normed. Collective over ep*etp, tp and over the ranks
/// that share router statistics. `sums` is null when a block is computed again: then nothing
/// is counted twice, and the statistics of the first time, still in `activations`, are kept.
template <class T>
void moe_forward(const Context& context, const MoeSetup<T>& setup, const MicroBatch& batch,
                 const BlockTensors<T>& weights, const DeviceView<const T, 2>& x_TD,
                 MoeActivations<T>& activations, const LayerSums* sums,
                 const DeviceView<T, 2>& y_TD);

/// \brief dx_TD (overwritten) from dy_TD; gradients accumulate, those of experts times
/// Context::gradient_beta() before.
/// Collective as moe_forward.
/// \param router_loss_scale  weight of this micro-batch's router losses in the step's gradient
template <class T>
void moe_backward(const Context& context, const MoeSetup<T>& setup, const MicroBatch& batch,
                  const BlockTensors<T>& weights, const DeviceView<const T, 2>& x_TD,
                  const MoeActivations<T>& activations, double router_loss_scale,
                  const DeviceView<const T, 2>& dy_TD,
                  const BlockTensors<Gradient<T>>& gradients, const DeviceView<T, 2>& dx_TD);

}  // namespace pleat::model
