// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief SwiGLU (Shazeer, arXiv 2002.05202): h = silu(gate) * up, with the routing weight of
/// the row multiplied in where there is one (exact, since the second projection has no bias).
///
/// Legend: R rows, F ffn; gate_up_R2F holds the gate in columns [0, F), up in [F, 2F).

#include "pleat/base/types.hpp"

namespace pleat::kernels {

/// \param weight_R  routing weights; an empty view stands for ones
template <class T>
void swiglu_forward(const ExecSpace& exec, const DeviceView<const T, 2>& gate_up_R2F,
                    const DeviceView<const Accumulator<T>, 1>& weight_R,
                    const DeviceView<T, 2>& h_RF);

/// \brief Overwrites dgate_up_R2F (may be the same memory as gate_up_R2F), h_RF (may be the
/// same memory as dh_RF: receives the forward result anew, for the second projection's
/// gradient) and, where weight_R is not empty, dweight_R.
template <class T>
void swiglu_backward(const ExecSpace& exec, const DeviceView<const T, 2>& gate_up_R2F,
                     const DeviceView<const Accumulator<T>, 1>& weight_R,
                     const DeviceView<const T, 2>& dh_RF, const DeviceView<T, 2>& dgate_up_R2F,
                     const DeviceView<T, 2>& h_RF,
                     const DeviceView<Accumulator<T>, 1>& dweight_R);

}  // namespace pleat::kernels
