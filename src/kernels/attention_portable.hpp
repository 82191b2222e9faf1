// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Blockwise attention for any Kokkos execution space.
///
/// A team owns one tile of B queries (forward, dq) or B keys (dk, dv) and walks over the
/// tiles of the other side that the causal mask leaves. No atomics: every output element
/// has one owner, which sums in a fixed order. Legend as in attention.hpp; B tile rows.

#include "pleat/kernels/attention.hpp"

namespace pleat::kernels {

template <class T>
void portable_attention_forward(const ExecSpace& exec, const AttentionShape& shape,
                                Accumulator<T> scale, Pieces pieces,
                                const DeviceView<const T, 2>& q_TQ,
                                const DeviceView<const T, 2>& kv_UR,
                                const DeviceView<T, 2>& o_TO,
                                const DeviceView<Accumulator<T>, 2>& lse_HT);

template <class T>
void portable_attention_backward(const ExecSpace& exec, const AttentionShape& shape,
                                 Accumulator<T> scale, Pieces pieces,
                                 bool accumulate_keys, const DeviceView<const T, 2>& q_TQ,
                                 const DeviceView<const T, 2>& kv_UR,
                                 const DeviceView<const Accumulator<T>, 2>& lse_HT,
                                 const DeviceView<const Accumulator<T>, 2>& delta_HT,
                                 const DeviceView<const T, 2>& do_TO,
                                 const DeviceView<T, 2>& dq_TQ,
                                 const DeviceView<T, 2>& dkv_UR);

}  // namespace pleat::kernels
