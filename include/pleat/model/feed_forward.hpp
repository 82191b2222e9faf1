// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A SwiGLU over all tokens: y = w2 (silu(w1 x) * (w3 x)). The dense layers and the
/// shared expert are made of it.
///
/// With tensor parallelism each rank has a slice of the ffn and computes it for all U rows.
///
/// Legend: T, U rows, D hidden, F this rank's ffn.

#include "pleat/model/context.hpp"
#include "pleat/model/parameters.hpp"

namespace pleat::model {

template <class T>
struct FeedForwardActivations {
  DeviceView<T, 2> gate_up_U2F;
};

/// \brief y_TD = beta y_TD + feed_forward(x_TD). Collective over tp.
template <class T>
void feed_forward(const Context& context, const FeedForwardTensors<T>& weights,
                  const DeviceView<const T, 2>& x_TD, FeedForwardActivations<T>& activations,
                  Accumulator<T> beta, const DeviceView<T, 2>& y_TD);

/// \brief dx_TD = beta dx_TD + gradient for x_TD; gradients accumulate, times
/// Context::gradient_beta() before. Collective over tp.
template <class T>
void feed_forward_backward(const Context& context, const FeedForwardTensors<T>& weights,
                           const DeviceView<const T, 2>& x_TD,
                           const FeedForwardActivations<T>& activations,
                           const DeviceView<const T, 2>& dy_TD,
                           const FeedForwardTensors<Gradient<T>>& gradients, Accumulator<T> beta,
                           const DeviceView<T, 2>& dx_TD);

}  // namespace pleat::model
