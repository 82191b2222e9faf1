// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/placement.hpp"

#include <algorithm>
#include <numeric>

#include "pleat/base/error.hpp"

namespace pleat::model {
namespace {

using comm::Axis;

/// The layers of each chunk of a stage.
std::vector<Slice> stage_chunks(const std::vector<std::int64_t>& layout,
                                std::int64_t stages, std::int64_t stage) {
  std::vector<Slice> chunks;
  std::int64_t first = 0;
  for (std::size_t v = 0; v < layout.size(); ++v) {
    if (static_cast<std::int64_t>(v) % stages == stage)
      chunks.push_back({first, layout[v]});
    first += layout[v];
  }
  return chunks;
}

void place_kv_heads(std::int64_t tensor_ranks, std::int64_t tensor_rank, Placement& p) {
  const std::int64_t kv_heads = p.whole.kv_heads;
  if (kv_heads >= tensor_ranks) {
    p.kv_heads = slice_of(kv_heads, tensor_ranks, tensor_rank);
    return;
  }
  p.kv_replicas = tensor_ranks / kv_heads;
  p.kv_replica = tensor_rank % p.kv_replicas;
  p.kv_heads = {tensor_rank / p.kv_replicas, 1};
}

plan::ModelConfig part_of(const Placement& p) {
  plan::ModelConfig part = p.whole;
  part.heads = p.heads.count;
  part.kv_heads = p.kv_heads.count;
  part.ffn = p.ffn.count;
  part.moe.shared_ffn = p.shared_ffn.count;
  part.moe.ffn = p.expert_ffn.count;
  return part;
}

}  // namespace

Slice slice_of(std::int64_t n, std::int64_t parts, std::int64_t index) {
  const std::int64_t size = (n + parts - 1) / parts;
  const std::int64_t first = std::min(n, index * size);
  return {first, std::min(n, first + size) - first};
}

std::optional<int> Placement::kv_copy_group() const {
  if (kv_replicas == 1) return std::nullopt;
  return static_cast<int>(kv_heads.first);
}

bool Placement::has_layer(std::int64_t layer) const {
  return std::any_of(chunks.begin(), chunks.end(), [&](const Slice& chunk) {
    return layer >= chunk.first && layer < chunk.end();
  });
}

Placement make_placement(const plan::ModelConfig& config) {
  return make_placement(config, comm::GridShape({}, 1), 0, {config.layers});
}

Placement make_placement(const plan::ModelConfig& config, const comm::GridShape& shape,
                         std::int64_t rank, const std::vector<std::int64_t>& layout) {
  PLEAT_ASSERT(
      std::accumulate(layout.begin(), layout.end(), std::int64_t{0}) == config.layers,
      "the layout is not of {} layers", config.layers);
  const auto degree = [&](Axis axis) { return shape.degree(axis); };
  const auto at = [&](Axis axis) { return shape.coordinate(rank, axis); };
  const std::int64_t tensor = degree(Axis::kTensor);
  const std::int64_t stage = at(Axis::kPipeline);
  Placement p;
  p.whole = config;
  p.heads = slice_of(config.heads, tensor, at(Axis::kTensor));
  place_kv_heads(tensor, at(Axis::kTensor), p);
  p.vocab = slice_of(config.vocab, tensor, at(Axis::kTensor));
  p.ffn = slice_of(config.ffn, tensor, at(Axis::kTensor));
  p.shared_ffn = slice_of(config.moe.shared_ffn, tensor, at(Axis::kTensor));
  p.experts = slice_of(config.moe.experts, degree(Axis::kExpert), at(Axis::kExpert));
  p.expert_ffn =
      slice_of(config.moe.ffn, degree(Axis::kExpertTensor), at(Axis::kExpertTensor));
  p.part = part_of(p);
  p.chunks = stage_chunks(layout, degree(Axis::kPipeline), stage);
  p.has_embedding = stage == 0;
  p.has_head = stage == degree(Axis::kPipeline) - 1;
  const std::int64_t dense = degree(Axis::kData) * degree(Axis::kContext);
  p.shards = {dense, dense * tensor, degree(Axis::kExpertData)};
  const std::int64_t index =
      at(Axis::kData) * degree(Axis::kContext) + at(Axis::kContext);
  p.shard_index = {index, index * tensor + at(Axis::kTensor), at(Axis::kExpertData)};
  return p;
}

}  // namespace pleat::model
