// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Attention as matrix products over blocks of queries, for GPUs whose library
/// multiplies far quicker than the portable kernels (docs/adr/0018). Same results up to
/// rounding. Where PLEAT_CUBLASLT_GEMM is defined.

#include "pleat/kernels/attention.hpp"

namespace pleat::kernels {

/// \brief The first piece of the keys: overwrites o and lse.
template <class T>
void products_attention_forward(const ExecSpace& exec, const AttentionShape& shape,
                                Accumulator<T> scale, const DeviceView<const T, 2>& q_TQ,
                                const DeviceView<const T, 2>& kv_UR, Arena& scratch,
                                const DeviceView<T, 2>& o_TO,
                                const DeviceView<Accumulator<T>, 2>& lse_HT);

/// \brief Overwrites dq and dkv.
template <class T>
void products_attention_backward(const ExecSpace& exec, const AttentionShape& shape,
                                 Accumulator<T> scale, const DeviceView<const T, 2>& q_TQ,
                                 const DeviceView<const T, 2>& kv_UR,
                                 const DeviceView<const Accumulator<T>, 2>& lse_HT,
                                 const DeviceView<const Accumulator<T>, 2>& delta_HT,
                                 const DeviceView<const T, 2>& do_TO, Arena& scratch,
                                 const DeviceView<T, 2>& dq_TQ,
                                 const DeviceView<T, 2>& dkv_UR);

}  // namespace pleat::kernels
