// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Which stage of a pipeline computes what in which order, and which layers it holds.
/// Pure arithmetic.
///
/// With several chunks per stage ("interleaved", Narayanan et al., arXiv 2104.04473), chunk c of
/// stage s is virtual stage c stages + s of the model.

#include <cstdint>
#include <vector>

#include "pleat/plan/model_config.hpp"

namespace pleat::train {

enum class Work { kForward, kBackward };

/// \brief One piece of work of a stage.
struct PipelineTask {
  Work work = Work::kForward;
  std::int64_t micro_batch = 0;
  std::int64_t chunk = 0;
  bool operator==(const PipelineTask&) const = default;
};

/// \brief The tasks of one stage in order: one forward, one backward (1F1B, Narayanan et al.)
/// after a warm-up, interleaved when there are several chunks. Any number of micro-batches: with
/// interleaving one that is no multiple of the stages is allowed. Taken with blocking receives
/// and sends that do not wait, the orders of all stages never deadlock.
std::vector<PipelineTask> pipeline_tasks(std::int64_t stages, std::int64_t stage,
                                         std::int64_t chunks, std::int64_t micro_batches);

/// \brief Micro-batches, times chunks, whose activations a stage holds at once at most.
std::int64_t pipeline_depth(const std::vector<PipelineTask>& tasks);
/// \brief The same of pipeline_tasks(), however many micro-batches there are.
std::int64_t pipeline_depth(std::int64_t stages, std::int64_t stage, std::int64_t chunks,
                            std::int64_t micro_batches);

/// \brief Layers of each virtual stage, in model order, so that the largest time of a virtual
/// stage is least; embedding and loss count by their FLOPs relative to a layer's. Every virtual
/// stage has at least one layer where there are enough.
std::vector<std::int64_t> balanced_layout(const plan::ModelConfig& config, std::int64_t sequence,
                                          std::int64_t virtual_stages);

}  // namespace pleat::train
