// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Attention over a sequence that is cut over context ranks.
///
/// The sequence is cut into 2 cp equal chunks, of which rank r holds chunks r and 2 cp - 1 - r:
/// causal attention then costs every rank the same. Keys and values reach the other ranks by a
/// ring or all at once; a pair of chunks (of queries and of keys) attends in full when the
/// keys come first, causally to itself, and not at all otherwise.
///
/// Legend: U rows of this rank, Q, O, H, d as in parameters.hpp (this rank's heads).

#include <cstdint>
#include <vector>

#include "pleat/model/context.hpp"
#include "pleat/plan/mapping.hpp"

namespace pleat::model {

/// \brief Positions within the sequence of the rows that context rank `rank` of `ranks` holds
/// of each sequence.
std::vector<std::int64_t> context_positions(std::int64_t sequence, std::int64_t ranks,
                                            std::int64_t rank);

/// \brief o_UO and lse_HU from qkv_UQ. Collective over cp.
/// \param part  the model as this rank computes it
template <class T>
void attend(const Context& context, const plan::ModelConfig& part, const MicroBatch& batch,
            plan::ContextExchange exchange, const DeviceView<const T, 2>& qkv_UQ,
            const DeviceView<T, 2>& o_UO, const DeviceView<Accumulator<T>, 2>& lse_HU);

/// \brief dqkv_UQ (overwritten) from do_UO. Collective over cp.
template <class T>
void attend_backward(const Context& context, const plan::ModelConfig& part,
                     const MicroBatch& batch, plan::ContextExchange exchange,
                     const DeviceView<const T, 2>& qkv_UQ, const DeviceView<const T, 2>& o_UO,
                     const DeviceView<const Accumulator<T>, 2>& lse_HU,
                     const DeviceView<const T, 2>& do_UO, const DeviceView<T, 2>& dqkv_UQ);

}  // namespace pleat::model
