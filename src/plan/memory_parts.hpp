// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What the two halves of the memory count have in common: what a rank keeps from
/// step to step, and what a step takes.

#include <algorithm>
#include <cstdint>

#include "pleat/plan/memory.hpp"

namespace pleat::plan {

inline double real(std::int64_t n) { return static_cast<double>(n); }

/// \brief Bytes of a gradient, a moment, a statistic: fp32 at least.
inline double wide_bytes(const MemoryRequest& request) {
  return std::max(4.0, real(request.scalar_bytes));
}

/// \brief Whether the stage has layers of that kind.
inline bool holds(const StageLoad& stage, bool is_moe) {
  return std::any_of(stage.chunks.begin(), stage.chunks.end(),
                     [&](const ChunkLoad& chunk) {
                       return (is_moe ? chunk.moe_layers : chunk.dense_layers) > 0;
                     });
}

/// \brief Largest value of `elements(is_moe)` over the kinds of layers that the stage
/// has.
template <class Elements>
double largest(const StageLoad& stage, const Elements& elements) {
  return std::max(holds(stage, true) ? elements(true) : 0.0,
                  holds(stage, false) ? elements(false) : 0.0);
}

/// \brief Weights, their gradients, moments, and gradients on their way to the sums.
void add_state(const ModelConfig& config, const MemoryRequest& request,
               const StageLoad& stage, MemoryUse& use);

}  // namespace pleat::plan
