// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief How a model is cut over the axes of the process grids.

#include <cstdint>

#include "pleat/plan/model_config.hpp"

namespace pleat::plan {

/// \brief Degrees of all axes; 1 where nothing is cut.
struct Mapping {
  std::int64_t pipeline = 1;
  std::int64_t data = 1;
  std::int64_t context = 1;
  std::int64_t tensor = 1;
  std::int64_t expert_data = 1;
  std::int64_t expert = 1;
  std::int64_t expert_tensor = 1;
};

enum class DispatcherKind {
  kAllToAll,  ///< all-to-all-v over ep, all-gather-v / reduce-scatter-v over etp
  kAllGather  ///< all-gather-v / reduce-scatter-v over ep*etp
};

/// \brief How keys and values reach the other context ranks.
enum class ContextExchange {
  kRing,      ///< neighbour to neighbour, attention to one piece during the next one's way
  kAllGather  ///< all at once
};

enum class PipelineSchedule { kOneForwardOneBackward, kInterleaved };

/// \brief What is split over the ranks that sum a gradient.
enum class Sharding {
  kOptimizer,  ///< moments (ZeRO-1)
  kParameters  ///< weights and gradients too (ZeRO-3, the FSDP rows of the paper)
};

/// \brief Sequences of a step and their length.
struct Batch {
  std::int64_t sequence = 1;  ///< tokens
  std::int64_t micro = 1;     ///< sequences of one micro-batch
  std::int64_t global = 1;    ///< sequences of one step
};

/// \brief Checks that every axis divides what it cuts. That the degrees fill the ranks is
/// comm::GridShape's part.
/// \throws InputError PL0610 with the nearest degree that fits
void validate_mapping(const ModelConfig& config, const Batch& batch,
                      const Mapping& mapping);

}  // namespace pleat::plan
