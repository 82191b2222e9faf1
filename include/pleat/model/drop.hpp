// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Token dropping: which (token, choice) pairs exceed an expert's capacity.
///
/// Legend: T tokens of this rank, K experts per token, E experts.

#include <cstdint>

#include "pleat/model/context.hpp"

namespace pleat::model {

/// \brief ceil(tokens top_k / experts factor): pairs that an expert takes of so many tokens.
std::int64_t expert_capacity(const plan::MoeConfig& moe, std::int64_t tokens);

/// \brief Rows that each expert gets at most from a rank with this micro-batch: what a padding
/// dispatcher is made with.
std::int64_t capacity_rows(const plan::MoeConfig& moe, const MicroBatch& batch,
                           const comm::Grid& grid);

/// \brief sent_TK = index_TK, but -1 for the pairs that exceed the capacity of their expert.
/// Capacity is that of the positions of a sequence (kSequence: all of them, found by one
/// all-gather over cp*tp; kSubSequence: those on this rank). Padding tokens take none. An order
/// by probability takes weight_TK; equal weights, and the order by position, go by position,
/// then choice. No host synchronisation.
/// Collective over cp*tp with kSequence.
template <class T>
void drop_over_capacity(const Context& context, const plan::MoeConfig& moe,
                        const MicroBatch& batch, const DeviceView<const std::int32_t, 2>& index_TK,
                        const DeviceView<const Accumulator<T>, 2>& weight_TK,
                        const DeviceView<std::int32_t, 2>& sent_TK);

}  // namespace pleat::model
