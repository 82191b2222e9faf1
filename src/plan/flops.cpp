// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Parameters and floating-point operations, counted from the shape alone.
#include "pleat/plan/model_config.hpp"

namespace pleat::plan {
namespace {

/// Two operations for each weight that a token meets, forward once and backward twice.
constexpr double kPerWeight = 6.0;

/// Weights of the projections q, k, v and output.
std::int64_t attention_matrices(const ModelConfig& config) {
  return config.hidden * (config.qkv_size() + config.q_size());
}

/// Biases of q, k, v, the head-wise norms of q and k, and the two norms of the layer.
std::int64_t layer_vectors(const ModelConfig& config) {
  return (config.qkv_bias ? config.qkv_size() : 0) +
         (config.qk_norm ? 2 * config.head_dim : 0) + 2 * config.hidden;
}

std::int64_t swiglu_matrices(std::int64_t hidden, std::int64_t ffn) {
  return 3 * hidden * ffn;
}

/// Router, shared expert and its gate.
std::int64_t moe_common(const ModelConfig& config) {
  const MoeConfig& moe = config.moe;
  return config.hidden * (moe.experts + (moe.shared_gate ? 1 : 0)) +
         swiglu_matrices(config.hidden, moe.shared_ffn);
}

/// Matrix elements that one token meets in the feed-forward part of a layer, without the
/// router and the gate of the shared expert.
std::int64_t active_ffn_matrices(const ModelConfig& config, bool is_moe) {
  if (!is_moe) return swiglu_matrices(config.hidden, config.ffn);
  return swiglu_matrices(config.hidden,
                         config.moe.top_k * config.moe.ffn + config.moe.shared_ffn);
}

/// Of one layer, q k^T and the weighted sum of v: 4 q_size per visible position, three
/// times.
double full_scores(const ModelConfig& config, std::int64_t sequence) {
  return 12.0 * static_cast<double>(config.q_size()) * static_cast<double>(sequence);
}

}  // namespace

ParameterCount count_parameters(const ModelConfig& config) {
  const std::int64_t expert = swiglu_matrices(config.hidden, config.moe.ffn);
  const std::int64_t embedding = config.vocab * config.hidden;
  const std::int64_t outside = (config.tied ? 1 : 2) * embedding + config.hidden;
  ParameterCount count{outside, outside};
  for (const bool is_moe : config.moe_layer) {
    const std::int64_t common =
        attention_matrices(config) + layer_vectors(config) +
        (is_moe ? moe_common(config) : swiglu_matrices(config.hidden, config.ffn));
    count.total += common + (is_moe ? config.moe.experts * expert : 0);
    count.active += common + (is_moe ? config.moe.top_k * expert : 0);
  }
  return count;
}

double layer_flops_per_token(const ModelConfig& config, bool is_moe,
                             std::int64_t sequence) {
  return kPerWeight * static_cast<double>(attention_matrices(config) +
                                          active_ffn_matrices(config, is_moe)) +
         0.5 * full_scores(config, sequence);
}

double head_flops_per_token(const ModelConfig& config) {
  return kPerWeight * static_cast<double>(config.hidden * config.vocab);
}

FlopCount training_flops_per_token(const ModelConfig& config, std::int64_t sequence) {
  double causal = head_flops_per_token(config);
  for (const bool is_moe : config.moe_layer)
    causal += layer_flops_per_token(config, is_moe, sequence);
  const double halved =
      0.5 * static_cast<double>(config.layers) * full_scores(config, sequence);
  return {causal + halved, causal};
}

}  // namespace pleat::plan
