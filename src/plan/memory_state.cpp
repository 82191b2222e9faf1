// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief What a rank keeps of the model from step to step, and what its sums of
/// gradients take.
#include <algorithm>

#include "memory_parts.hpp"

namespace pleat::plan {
namespace {

/// Elements of gradients that a rank owns of what several ranks sum.
struct SummedShards {
  double layer = 0.0;    ///< of the largest layer
  double outside = 0.0;  ///< of embedding or head
  double bucket = 0.0;   ///< the largest of one sum
};

SummedShards summed_shards(const ModelConfig& config, const Mapping& map,
                           const StageLoad& stage) {
  const double dense_ranks = real(map.data * map.context);
  SummedShards shards;
  const auto summed = [&](double elements, double ranks) {
    if (ranks <= 1.0) return 0.0;
    shards.bucket = std::max(shards.bucket, elements / ranks);
    return elements / ranks;
  };
  for (const bool is_moe : {true, false}) {
    if (!holds(stage, is_moe)) continue;
    const LocalParameters layer = layer_parameters(config, map, is_moe);
    const double of_layer =
        summed(real(layer.dense), dense_ranks) +
        summed(real(layer.replicated), dense_ranks * real(map.tensor)) +
        summed(real(layer.experts), real(map.expert_data));
    shards.layer = std::max(shards.layer, of_layer);
  }
  const std::int64_t rows = (config.vocab + map.tensor - 1) / map.tensor;
  if (stage.embedding || stage.head) {
    shards.outside = summed(real(rows * config.hidden), dense_ranks);
  }
  shards.bucket = std::min(shards.bucket, static_cast<double>(kLargestShard));
  return shards;
}

/// What MPI holds of the gradients that it sums, and where the sums of sharded layers
/// arrive.
void add_reduction(const ModelConfig& config, const MemoryRequest& request,
                   const StageLoad& stage, MemoryUse& use) {
  const SummedShards shards = summed_shards(config, request.mapping, stage);
  double elements = 2.0 * shards.bucket;
  if (request.sharding != Sharding::kParameters) {
    // A layer is summed while the next one computes its gradients.
    const double most = std::max(2.0 * static_cast<double>(kLargestShard), shards.layer);
    elements = std::max(shards.layer, std::min(shards.outside, most));
  }
  use.reduction = wide_bytes(request) * elements;
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
