// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Small operations on rows and on flat buffers.
///
/// Legend: T tokens, D hidden, N elements of a flat buffer.

#include "pleat/base/arena.hpp"
#include "pleat/base/types.hpp"

namespace pleat::kernels {

/// \brief y_TD += x_TD.
template <class T>
void add_in_place(const ExecSpace& exec, const DeviceView<const T, 2>& x_TD,
                  const DeviceView<T, 2>& y_TD);

/// \brief y_TD += bias_D in every row.
template <class T>
void add_bias(const ExecSpace& exec, const DeviceView<const T, 1>& bias_D,
              const DeviceView<T, 2>& y_TD);

/// \brief dbias_D += sum over the rows of dy_TD, in a fixed order.
template <class T>
void add_bias_backward(const ExecSpace& exec, const DeviceView<const T, 2>& dy_TD,
                       Arena& scratch, const DeviceView<Gradient<T>, 1>& dbias_D);

/// \brief y_TD = sigmoid(gate_T) x_TD + y_TD: the shared expert's contribution.
template <class T>
void add_sigmoid_gated(const ExecSpace& exec, const DeviceView<const T, 2>& gate_T1,
                       const DeviceView<const T, 2>& x_TD, const DeviceView<T, 2>& y_TD);

/// \brief Gradient: dx_TD = sigmoid(gate) dy, dgate = sigmoid'(gate) (x . dy). Overwrites.
template <class T>
void sigmoid_gated_backward(const ExecSpace& exec, const DeviceView<const T, 2>& gate_T1,
                            const DeviceView<const T, 2>& x_TD,
                            const DeviceView<const T, 2>& dy_TD, const DeviceView<T, 2>& dx_TD,
                            const DeviceView<T, 2>& dgate_T1);

/// \brief result() = sum of x_N^2, formed in fp64 and in a fixed order. No host
/// synchronisation.
template <class T>
void sum_of_squares(const ExecSpace& exec, const DeviceView<const T, 1>& x_N,
                    Arena& scratch, const DeviceView<double, 0>& result);

/// \brief y_N = x_N, rounded where To is narrower.
template <class From, class To>
void convert(const ExecSpace& exec, const DeviceView<const From, 1>& x_N,
             const DeviceView<To, 1>& y_N);

/// \brief Whether any element is NaN or Inf. Synchronises the host.
template <class T>
bool has_non_finite(const ExecSpace& exec, const DeviceView<const T, 1>& x_N);

}  // namespace pleat::kernels
