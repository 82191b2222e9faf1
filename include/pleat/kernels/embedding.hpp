// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Vocabulary embedding. Legend: T tokens, V vocabulary, D hidden.

#include <cstdint>

#include "pleat/base/types.hpp"

namespace pleat::kernels {

/// \brief x_TD[t] = w_VD[tokens_T[t] - first_entry], 0 for tokens of another slice.
/// \param first_entry  token number of the first row of w_VD
template <class T>
void embedding_forward(const ExecSpace& exec, std::int64_t first_entry,
                       const DeviceView<const std::int32_t, 1>& tokens_T,
                       const DeviceView<const T, 2>& w_VD, const DeviceView<T, 2>& x_TD);

/// \brief dw_VD[tokens_T[t] - first_entry] += dx_TD[t], summed in the order of the tokens;
/// tokens of another slice are passed over.
template <class T>
void embedding_backward(const ExecSpace& exec, std::int64_t first_entry,
                        const DeviceView<const std::int32_t, 1>& tokens_T,
                        const DeviceView<const T, 2>& dx_TD,
                        const DeviceView<Gradient<T>, 2>& dw_VD);

}  // namespace pleat::kernels
