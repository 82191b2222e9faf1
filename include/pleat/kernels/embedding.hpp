// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Vocabulary embedding. Legend: T tokens, V vocabulary, D hidden.

#include <cstdint>

#include "pleat/base/types.hpp"

namespace pleat::kernels {

/// \brief x_TD[t] = w_VD[tokens_T[t]].
template <class T>
void embedding_forward(const ExecSpace& exec, const DeviceView<const std::int32_t, 1>& tokens_T,
                       const DeviceView<const T, 2>& w_VD, const DeviceView<T, 2>& x_TD);

/// \brief dw_VD[tokens_T[t]] += dx_TD[t], summed in the order of the tokens.
template <class T>
void embedding_backward(const ExecSpace& exec, const DeviceView<const std::int32_t, 1>& tokens_T,
                        const DeviceView<const T, 2>& dx_TD, const DeviceView<T, 2>& dw_VD);

}  // namespace pleat::kernels
