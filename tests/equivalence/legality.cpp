// SPDX-License-Identifier: Apache-2.0
#include "legality.hpp"

#include <algorithm>
#include <numeric>

namespace pleat::test {
namespace {

bool divides(std::int64_t divisor, std::int64_t number) { return number % divisor == 0; }

bool fills_both_grids(const train::ParallelSection& p, std::int64_t ranks) {
  return divides(p.pipeline * p.context * p.tensor, ranks) &&
         divides(p.pipeline * p.expert * p.expert_tensor, ranks);
}

bool cuts_heads(const plan::ModelConfig& model, std::int64_t tensor) {
  const bool whole = divides(tensor, model.kv_heads);
  const bool evenly_copied = divides(model.kv_heads, tensor);
  return divides(tensor, model.heads) && (whole || evenly_copied);
}

/// An early and a late chunk on each context rank, equal rows on each tensor rank.
bool cuts_sequence(const train::RunConfig& config) {
  const std::int64_t context = config.parallel.context;
  const std::int64_t chunks = context == 1 ? 1 : 2 * context;
  return divides(std::lcm(chunks, context * config.parallel.tensor),
                 config.batch.sequence);
}

bool cuts_feed_forwards(const plan::ModelConfig& model, const train::ParallelSection& p) {
  const auto& is_moe = model.moe_layer;
  if (std::count(is_moe.begin(), is_moe.end(), false) > 0 &&
      !divides(p.tensor, model.ffn)) {
    return false;
  }
  if (std::count(is_moe.begin(), is_moe.end(), true) == 0) return true;
  return divides(p.expert, model.moe.experts) &&
         divides(p.expert_tensor, model.moe.ffn) &&
         divides(p.tensor, model.moe.shared_ffn);
}

/// Stages are empty only where a layout says so.
bool fills_stages(std::int64_t layers, const train::ParallelSection& p) {
  const std::int64_t stages = p.pipeline * p.chunks;
  if (p.layout.empty()) return stages <= layers;
  return static_cast<std::int64_t>(p.layout.size()) == stages &&
         *std::min_element(p.layout.begin(), p.layout.end()) >= 0 &&
         std::accumulate(p.layout.begin(), p.layout.end(), std::int64_t{0}) == layers;
}

/// Several chunks are interleaved over several stages, and only they are.
bool suits_schedule(const train::ParallelSection& p) {
  const bool interleaved = p.schedule == plan::PipelineSchedule::kInterleaved;
  return interleaved == (p.chunks > 1) && (!interleaved || p.pipeline > 1);
}

}  // namespace

bool is_legal(const train::RunConfig& config, std::int64_t ranks) {
  const train::ParallelSection& p = config.parallel;
  return fills_both_grids(p, ranks) && cuts_heads(config.model, p.tensor) &&
         cuts_sequence(config) && cuts_feed_forwards(config.model, p) &&
         fills_stages(config.model.layers, p) && suits_schedule(p) &&
         divides(config.batch.micro, config.batch.global);
}

}  // namespace pleat::test
