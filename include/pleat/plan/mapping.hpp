// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief How a model is cut over the axes of the process grids.

#include <cstdint>
#include <optional>
#include <vector>

#include "pleat/plan/model_config.hpp"

namespace pleat::plan {

enum class PipelineSchedule { kOneForwardOneBackward, kInterleaved };

/// \brief Degrees of all axes, 1 where nothing is cut, and how the layers lie on the
/// stages.
struct Mapping {
  std::int64_t pipeline = 1;
  std::int64_t data = 1;
  std::int64_t context = 1;
  std::int64_t tensor = 1;
  std::int64_t expert_data = 1;
  std::int64_t expert = 1;
  std::int64_t expert_tensor = 1;
  std::int64_t chunks = 1;  ///< of the model on each stage
  std::vector<std::int64_t> layout =
      {};  ///< layers of each virtual stage; empty: balanced
  /// Which number of chunks and stages it allows; none: any.
  std::optional<PipelineSchedule> schedule = {};

  std::int64_t virtual_stages() const { return pipeline * chunks; }
};

enum class DispatcherKind {
  kAllToAll,  ///< all-to-all-v over ep, all-gather-v / reduce-scatter-v over etp
  kAllGather  ///< all-gather-v / reduce-scatter-v over ep*etp
};

/// \brief How keys and values reach the other context ranks.
enum class ContextExchange {
  kRing,  ///< neighbour to neighbour, attention to one piece during the next one's way
  kAllGather  ///< all at once
};

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

/// \brief Checks that every axis divides what it cuts and that the layers fill the
/// stages. That the degrees fill the ranks is comm::GridShape's part. The vocabulary may
/// have any size, and a step any number of micro-batches.
///
/// The message ends with the nearest legal choices: other values of the keys that the
/// broken rule speaks of, each of which is_legal() accepts in place of what the mapping
/// has; where no single one suffices, several that do together. \param ranks  that the
/// choices must fill; 0: any number \throws InputError PL0209 (schedule and chunks),
/// PL0610 (a degree does not divide), PL0622 (more virtual stages than layers), PL0623
/// (the layout does not fit)
void validate_mapping(const ModelConfig& config, const Batch& batch,
                      const Mapping& mapping, std::int64_t ranks = 0);

/// \brief Whether validate_mapping() accepts it and both grids fill the ranks.
/// \param ranks  0: any number
bool is_legal(const ModelConfig& config, const Batch& batch, const Mapping& mapping,
              std::int64_t ranks = 0);

}  // namespace pleat::plan
