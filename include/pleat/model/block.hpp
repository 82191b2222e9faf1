// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief One transformer block: attention, then a dense SwiGLU or a MoE layer, each behind a
/// norm and a residual connection.
///
/// Legend: T tokens, D hidden.

#include <cstdint>

#include "pleat/model/attention.hpp"
#include "pleat/model/feed_forward.hpp"
#include "pleat/model/moe.hpp"

namespace pleat::model {

/// \brief What does not change from step to step and is the same for every block.
template <class T>
struct BlockSetup {
  const plan::ModelConfig& part;  ///< the model as this rank computes it
  AttentionSetup<T> attention;
  MoeSetup<T> moe;
};

template <class T>
struct BlockActivations {
  AttentionActivations<T> attention;
  DeviceView<T, 2> middle_TD;  ///< the residual stream between the two halves
  DeviceView<Accumulator<T>, 1> inverse_rms_T;
  DeviceView<T, 2> normed_TD;
  FeedForwardActivations<T> dense;
  MoeActivations<T> moe;
};

/// \brief y_TD from x_TD; both must outlive the backward pass unless the block's activations
/// are dropped. Collective as the halves are.
template <class T>
void block_forward(const Context& context, const BlockSetup<T>& setup, std::int64_t layer,
                   const MicroBatch& batch, const BlockTensors<T>& weights,
                   const DeviceView<T, 2>& x_TD, BlockActivations<T>& activations,
                   const LayerSums* sums, const DeviceView<T, 2>& y_TD);

/// \brief dx_TD holds the gradient of y_TD on entry, of x_TD on return; gradients accumulate,
/// those of projections times Context::gradient_beta() before.
template <class T>
void block_backward(const Context& context, const BlockSetup<T>& setup, std::int64_t layer,
                    const MicroBatch& batch, const BlockTensors<T>& weights,
                    const BlockActivations<T>& activations, double router_loss_scale,
                    const BlockTensors<Gradient<T>>& gradients, const DeviceView<T, 2>& dx_TD);

}  // namespace pleat::model
