// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief AdamW (Loshchilov and Hutter, arXiv 1711.05101) in one pass over a flat buffer.

#include <cstdint>

#include "pleat/base/types.hpp"

namespace pleat::kernels {

struct AdamWOptions {
  double learning_rate = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1.0e-8;
  double weight_decay = 0.0;  ///< 0 for the segments that are not decayed
  std::int64_t step = 1;      ///< counts from 1, for the bias correction
};

/// \brief One update, N elements: w -= lr wd w, then w -= lr m^ / (sqrt(v^) + eps).
/// \param gradient_scale  the clip factor, formed on the device; where it is not finite, nothing
///   changes, so that the step that failed can be looked at
template <class T>
void adamw_update(const ExecSpace& exec, const AdamWOptions& options,
                  const DeviceView<const double, 0>& gradient_scale,
                  const DeviceView<const T, 1>& gradient_N, const DeviceView<T, 1>& m_N,
                  const DeviceView<T, 1>& v_N, const DeviceView<T, 1>& w_N);

/// \brief In the same pass, rounded_N = w_N rounded: what the model computes with, where the
/// optimizer keeps wider masters. Nothing changes it where nothing changes w_N.
template <class T, class Narrow>
void adamw_update(const ExecSpace& exec, const AdamWOptions& options,
                  const DeviceView<const double, 0>& gradient_scale,
                  const DeviceView<const T, 1>& gradient_N, const DeviceView<T, 1>& m_N,
                  const DeviceView<T, 1>& v_N, const DeviceView<T, 1>& w_N,
                  const DeviceView<Narrow, 1>& rounded_N);

/// \brief scale() = min(1, clip / (sqrt(sum_of_squares) + 1e-6)), 1 when clip is 0, not
/// finite when the norm is not;
/// norm() = sqrt(sum_of_squares).
void clip_factor(const ExecSpace& exec, double clip,
                 const DeviceView<const double, 0>& sum_of_squares,
                 const DeviceView<double, 0>& norm, const DeviceView<double, 0>& scale);

}  // namespace pleat::kernels
