// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Which parameters a rank holds, from the degrees that cut them.
#include <algorithm>

#include "pleat/plan/memory.hpp"

namespace pleat::plan {
namespace {

/// Elements of q, k and v of the heads of a rank; fewer key/value heads than ranks are
/// replicated.
std::int64_t local_qkv(const ModelConfig& config, std::int64_t tensor) {
  return (config.heads / tensor +
          2 * std::max<std::int64_t>(1, config.kv_heads / tensor)) *
         config.head_dim;
}

std::int64_t attention_parameters(const ModelConfig& config, std::int64_t tensor) {
  const std::int64_t qkv = local_qkv(config, tensor);
  return config.hidden * (qkv + config.q_size() / tensor) + (config.qkv_bias ? qkv : 0);
}

}  // namespace

LocalParameters layer_parameters(const ModelConfig& config, const Mapping& mapping,
                                 bool is_moe) {
  const MoeConfig& moe = config.moe;
  LocalParameters local;
  local.dense = attention_parameters(config, mapping.tensor);
  // Norms, router and gate see sub-sequences: every tensor rank has them whole.
  local.replicated = 2 * config.hidden + (config.qk_norm ? 2 * config.head_dim : 0);
  if (!is_moe) {
    local.dense += 3 * config.hidden * config.ffn / mapping.tensor;
    return local;
  }
  local.replicated += config.hidden * (moe.experts + (moe.shared_gate ? 1 : 0));
  local.dense += 3 * config.hidden * moe.shared_ffn / mapping.tensor;
  local.experts = moe.experts / mapping.expert *
                  (3 * config.hidden * moe.ffn / mapping.expert_tensor);
  return local;
}

LocalParameters local_parameters(const ModelConfig& config, const Mapping& mapping,
                                 const StageLoad& stage) {
  const LocalParameters moe = layer_parameters(config, mapping, true);
  const LocalParameters dense = layer_parameters(config, mapping, false);
  LocalParameters local;
  for (const ChunkLoad& chunk : stage.chunks) {
    local.dense += chunk.moe_layers * moe.dense + chunk.dense_layers * dense.dense;
    local.replicated +=
        chunk.moe_layers * moe.replicated + chunk.dense_layers * dense.replicated;
    local.experts += chunk.moe_layers * moe.experts;
  }
  const std::int64_t rows = (config.vocab + mapping.tensor - 1) / mapping.tensor;
  // A tied head on the stage of the embedding is the embedding itself.
  const bool head = stage.head && !(config.tied && stage.embedding);
  local.outside = rows * config.hidden * ((stage.embedding ? 1 : 0) + (head ? 1 : 0)) +
                  (stage.head ? config.hidden : 0);
  return local;
}

StageLoad whole_model(const ModelConfig& config) {
  const auto moe = std::count(config.moe_layer.begin(), config.moe_layer.end(), true);
  return {.chunks = {{.moe_layers = moe, .dense_layers = config.layers - moe}}};
}

}  // namespace pleat::plan
