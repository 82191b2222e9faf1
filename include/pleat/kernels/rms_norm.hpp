// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Root-mean-square normalisation (Zhang and Sennrich, arXiv 1910.07467):
/// y = w * x / sqrt(mean(x^2) + eps), over whole rows or head by head.
///
/// Legend: T tokens, D hidden, d head dimension, Q one row of the fused q, k, v projection.

#include <cstdint>

#include "pleat/base/arena.hpp"
#include "pleat/base/types.hpp"

namespace pleat::kernels {

/// \brief y_TD from x_TD; inverse_rms_T is kept for the backward pass.
template <class T>
void rms_norm_forward(const ExecSpace& exec, const DeviceView<const T, 2>& x_TD,
                      const DeviceView<const T, 1>& w_D, double eps,
                      const DeviceView<T, 2>& y_TD,
                      const DeviceView<Accumulator<T>, 1>& inverse_rms_T);

/// \brief Adds the gradients: dx_TD += ..., dw_D += .... The sum over tokens has a fixed order.
template <class T>
void rms_norm_backward(const ExecSpace& exec, const DeviceView<const T, 2>& x_TD,
                       const DeviceView<const T, 1>& w_D,
                       const DeviceView<const Accumulator<T>, 1>& inverse_rms_T,
                       const DeviceView<const T, 2>& dy_TD, Arena& scratch,
                       const DeviceView<T, 2>& dx_TD, const DeviceView<Gradient<T>, 1>& dw_D);

/// \brief Head-wise norm, in place, of heads first_head .. first_head + heads - 1 of each row.
template <class T>
void head_rms_norm_forward(const ExecSpace& exec, std::int64_t first_head, std::int64_t heads,
                           std::int64_t head_dim, const DeviceView<const T, 1>& w_d, double eps,
                           const DeviceView<T, 2>& qkv_TQ);

/// \brief Gradient of head_rms_norm_forward, in place on dqkv_TQ; raw_TQ is the input of the
/// forward pass. dw_d += ....
template <class T>
void head_rms_norm_backward(const ExecSpace& exec, std::int64_t first_head, std::int64_t heads,
                            std::int64_t head_dim, const DeviceView<const T, 1>& w_d, double eps,
                            const DeviceView<const T, 2>& raw_TQ, Arena& scratch,
                            const DeviceView<T, 2>& dqkv_TQ,
                            const DeviceView<Gradient<T>, 1>& dw_d);

}  // namespace pleat::kernels
