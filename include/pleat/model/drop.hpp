// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Token dropping: which (token, choice) pairs exceed an expert's capacity.
///
/// Legend: T tokens of this rank, K experts per token, E experts.

#include <cstdint>

#include "pleat/model/context.hpp"

namespace pleat::model {

/// \brief ceil(tokens top_k / experts factor): pairs that an expert takes of so many
/// tokens.
std::int64_t expert_capacity(const plan::MoeConfig& moe, std::int64_t tokens);

/// \brief Where context rank `rank` of `degree` finds position `held` of the `sequence`
/// that it holds of a sequence: all there are are cut into 2 degree pieces, of which it
/// has piece `rank` and piece 2 degree - 1 - rank, so that causal attention is even work.
KOKKOS_INLINE_FUNCTION std::int64_t position_in_sequence(std::int64_t held,
                                                         std::int64_t sequence,
                                                         std::int64_t degree,
                                                         std::int64_t rank) {
  if (degree == 1) return held;
  const std::int64_t piece = sequence / 2;
  return held < piece ? rank * piece + held
                      : (2 * degree - 1 - rank) * piece + held - piece;
}

/// \brief Rows that each expert gets at most from any rank with such a micro-batch: what
/// a padding dispatcher is made with, so the same on all ranks.
std::int64_t capacity_rows(const plan::MoeConfig& moe, const MicroBatch& batch,
                           const comm::Grid& grid);

/// \brief sent_TK = index_TK, but -1 for the pairs that exceed the capacity of their
/// expert. Capacity is that of the positions of a sequence (kSequence: all of them, by
/// all-gathers over cp*tp, on which alone the host waits; kSubSequence: those on this
/// rank). Padding tokens take none. An order by probability takes weight_TK; equal
/// weights, and the order by position, go by position, then choice. Collective over cp*tp
/// with kSequence.
template <class T>
void drop_over_capacity(const Context& context, const plan::MoeConfig& moe,
                        const MicroBatch& batch,
                        const DeviceView<const std::int32_t, 2>& index_TK,
                        const DeviceView<const Accumulator<T>, 2>& weight_TK,
                        const DeviceView<std::int32_t, 2>& sent_TK);

}  // namespace pleat::model
