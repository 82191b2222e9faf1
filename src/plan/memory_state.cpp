// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief What a rank keeps of the model from step to step, and what its sums of
/// gradients take.
#include <algorithm>

#include "memory_parts.hpp"

namespace pleat::plan {
namespace {

/// The largest part of a gradient that a rank owns of one sum, in elements.
double largest_shard(const ModelConfig& config, const Mapping& map,
                     const StageLoad& stage) {
  const double dense_ranks = real(map.data * map.context);
  const double expert_ranks = real(map.expert_data);
  double shard = 0.0;
  const auto summed = [&](double elements, double ranks) {
    if (ranks > 1.0) shard = std::max(shard, elements / ranks);
  };
  for (const bool is_moe : {true, false}) {
    if (!holds(stage, is_moe)) continue;
    const LocalParameters layer = layer_parameters(config, map, is_moe);
    summed(real(layer.dense), dense_ranks);
    summed(real(layer.experts), expert_ranks);
  }
  const std::int64_t rows = (config.vocab + map.tensor - 1) / map.tensor;
  if (stage.embedding || stage.head) summed(real(rows * config.hidden), dense_ranks);
  return std::min(shard, static_cast<double>(kLargestShard));
}

/// What MPI holds of the gradients that it sums, and where the sums of sharded layers
/// arrive.
void add_reduction(const ModelConfig& config, const MemoryRequest& request,
                   const StageLoad& stage, MemoryUse& use) {
  constexpr double kAtOnce = 2.0;
  use.reduction =
      kAtOnce * wide_bytes(request) * largest_shard(config, request.mapping, stage);
}

}  // namespace

void add_state(const ModelConfig& config, const MemoryRequest& request,
               const StageLoad& stage, MemoryUse& use) {
  const Mapping& map = request.mapping;
  const double bytes = real(request.scalar_bytes);
  const double dense_ranks = real(map.data * map.context);
  const double expert_ranks = real(map.expert_data);
  const LocalParameters local = local_parameters(config, map, stage);
  const double share = real(local.dense) / dense_ranks +
                       real(local.replicated) / (dense_ranks * real(map.tensor)) +
                       real(local.experts) / expert_ranks;
  const bool has_masters = wide_bytes(request) > bytes;
  use.optimizer = (has_masters ? 3.0 : 2.0) * wide_bytes(request) *
                  (real(local.outside) / dense_ranks + share);
  use.parameters = bytes * real(local.total());
  if (request.sharding == Sharding::kParameters) {
    // The layer at work is whole.
    const double whole = largest(stage, [&](bool is_moe) {
      return real(layer_parameters(config, map, is_moe).total());
    });
    use.parameters = bytes * (real(local.outside) + share + whole);
  }
  use.gradients = use.parameters * wide_bytes(request) / bytes;
  add_reduction(config, request, stage, use);
}

}  // namespace pleat::plan
