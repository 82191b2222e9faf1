// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The attention half of a block: norm, q/k/v projection, optional bias and q/k norm,
/// rotation, causal attention, output projection, residual.
///
/// With tensor parallelism norm and residual are of this rank's T rows, the rest of the U rows
/// of its context rank and of this rank's heads.
///
/// Legend: T, U rows, D hidden, Q, O, d as in parameters.hpp, H this rank's heads.

#include "pleat/kernels/rope.hpp"
#include "pleat/model/context.hpp"
#include "pleat/model/parameters.hpp"
#include "pleat/plan/mapping.hpp"

namespace pleat::model {

/// \brief What the backward pass reads.
template <class T>
struct AttentionActivations {
  DeviceView<T, 2> x_TD;  ///< input of the block
  DeviceView<Accumulator<T>, 1> inverse_rms_T;
  DeviceView<T, 2> normed_TD;
  DeviceView<T, 2> raw_UQ;  ///< before q/k norm and rotation; only with q/k norm
  DeviceView<T, 2> qkv_UQ;  ///< after them
  DeviceView<T, 2> o_UO;
  DeviceView<Accumulator<T>, 2> lse_HU;
};

/// \brief What the attention of every layer has in common.
template <class T>
struct AttentionSetup {
  const plan::ModelConfig& part;       ///< with this rank's heads
  const kernels::RopeTables<T>& rope;  ///< of the positions that this rank holds
  plan::ContextExchange exchange;
};

/// \brief y_TD = x_TD + attention(norm(x_TD)). Collective over cp*tp.
template <class T>
void attention_forward(const Context& context, const AttentionSetup<T>& setup,
                       const MicroBatch& batch,
                       const BlockTensors<T>& weights, const DeviceView<T, 2>& x_TD,
                       AttentionActivations<T>& activations, const DeviceView<T, 2>& y_TD);

/// \brief dx_TD holds the gradient of y_TD on entry, of x_TD on return; gradients accumulate,
/// those of matrices times Context::gradient_beta() before.
/// Collective over cp*tp.
template <class T>
void attention_backward(const Context& context, const AttentionSetup<T>& setup,
                        const MicroBatch& batch,
                        const BlockTensors<T>& weights, const AttentionActivations<T>& activations,
                        const BlockTensors<Gradient<T>>& gradients,
                        const DeviceView<T, 2>& dx_TD);

}  // namespace pleat::model
