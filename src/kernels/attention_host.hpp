// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Blockwise attention on a CPU: tile products by host_gemm, one thread each,
/// between vectorised row loops. Same results as the portable kernels up to rounding.

#include "pleat/kernels/attention.hpp"

namespace pleat::kernels {

template <class T>
void host_attention_forward(const ExecSpace& exec, const AttentionShape& shape,
                            Accumulator<T> scale, Pieces pieces,
                            const DeviceView<const T, 2>& q_TQ,
                            const DeviceView<const T, 2>& kv_UR, Arena& scratch,
                            const DeviceView<T, 2>& o_TO,
                            const DeviceView<Accumulator<T>, 2>& lse_HT);

/// How the backward pass is cut into tasks: kFused computes each tile pair once but has
/// only one task per (sequence, key/value head); kSplit has one per tile and computes
/// pairs twice.
enum class BackwardTasks { kFused, kSplit };

/// \brief The cheaper cut for so many threads.
BackwardTasks choose_backward_tasks(const AttentionShape& shape, int threads);

template <class T>
void host_attention_backward(const ExecSpace& exec, const AttentionShape& shape,
                             Accumulator<T> scale, Pieces pieces, bool accumulate_keys,
                             const DeviceView<const T, 2>& q_TQ,
                             const DeviceView<const T, 2>& kv_UR,
                             const DeviceView<const Accumulator<T>, 2>& lse_HT,
                             const DeviceView<const Accumulator<T>, 2>& delta_HT,
                             const DeviceView<const T, 2>& do_TO, BackwardTasks tasks,
                             Arena& scratch, const DeviceView<T, 2>& dq_TQ,
                             const DeviceView<T, 2>& dkv_UR);

}  // namespace pleat::kernels
