// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Blockwise attention for any Kokkos execution space.
///
/// A team owns one tile of B queries (forward, dq) or B keys (dk, dv) and walks over the tiles
/// of the other side that the causal mask leaves. No atomics: every output element has one
/// owner, which sums in a fixed order. Legend as in attention.hpp; B tile rows.

#include "pleat/kernels/attention.hpp"

namespace pleat::kernels {

/// \brief delta_HT = do . o per head: the term that the softmax's gradient subtracts.
template <class T>
void attention_delta(const ExecSpace& exec, const AttentionShape& shape,
                     const DeviceView<const T, 2>& o_TO, const DeviceView<const T, 2>& do_TO,
                     const DeviceView<Accumulator<T>, 2>& delta_HT);

template <class T>
void portable_attention_forward(const ExecSpace& exec, const AttentionShape& shape,
                                Accumulator<T> scale, const DeviceView<const T, 2>& qkv_TQ,
                                const DeviceView<T, 2>& o_TO,
                                const DeviceView<Accumulator<T>, 2>& lse_HT);

template <class T>
void portable_attention_backward(const ExecSpace& exec, const AttentionShape& shape,
                                 Accumulator<T> scale, const DeviceView<const T, 2>& qkv_TQ,
                                 const DeviceView<const T, 2>& o_TO,
                                 const DeviceView<const Accumulator<T>, 2>& lse_HT,
                                 const DeviceView<const T, 2>& do_TO, Arena& scratch,
                                 const DeviceView<T, 2>& dqkv_TQ);

}  // namespace pleat::kernels
