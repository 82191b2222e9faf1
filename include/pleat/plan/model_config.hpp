// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The shape of a Mixture-of-Experts transformer, as a value.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pleat::plan {

/// \brief Whose tensor names and config.json the model follows; the mathematics is set by
/// the other fields alone.
enum class Family { kMixtral, kQwen2Moe, kQwen3Moe };

/// \brief How the router scores experts.
enum class RouterScore {
  kSoftmaxBeforeTopK,  ///< probabilities over all experts, then the largest k of them
  kSoftmaxAfterTopK,   ///< the largest k logits, then probabilities over those
  kSigmoid             ///< sigmoid of each logit by itself, then the largest k of them
};

/// \brief Over which tokens the load-balancing loss averages.
enum class AuxiliaryScope {
  kMicroBatch,
  kSequence,
  kGlobalBatch  ///< all data ranks, and the micro-batches of the step so far
};

/// \brief Over which tokens the capacity of an expert is counted.
enum class DropScope {
  kSubSequence,  ///< those of a sequence that one rank holds: depends on the mapping
  kSequence      ///< all of a sequence
};

/// \brief Which of too many (token, choice) pairs stay.
enum class DropPolicy {
  kProbs,    ///< the largest routing weights
  kPosition  ///< the earliest positions
};

/// \brief Token dropping: an expert takes ceil(tokens top_k / experts capacity_factor)
/// pairs.
struct DropConfig {
  double capacity_factor = 0.0;  ///< 0: nothing is dropped
  DropScope scope = DropScope::kSubSequence;
  DropPolicy policy = DropPolicy::kProbs;
  bool pad =
      false;  ///< fill every expert up to its capacity: all sizes are known beforehand

  bool active() const { return capacity_factor > 0.0; }
};

/// \brief What the backward pass computes again instead of keeping.
enum class Recompute {
  kNone,       ///< everything is kept
  kSelective,  ///< the attention core and the experts' inner activations
  kFull        ///< everything but the input of each block
};

struct MoeConfig {
  std::int64_t experts = 8;
  std::int64_t top_k = 2;
  std::int64_t ffn = 0;         ///< rows of one expert's gate projection
  std::int64_t shared_ffn = 0;  ///< 0: no shared expert
  bool shared_gate = false;     ///< sigmoid gate on the shared expert's output
  RouterScore score = RouterScore::kSoftmaxBeforeTopK;
  bool normalize = true;  ///< routing weights of a token divided by their sum
  double auxiliary_coefficient = 0.0;
  AuxiliaryScope auxiliary_scope = AuxiliaryScope::kMicroBatch;
  double z_coefficient = 0.0;
  // Group-limited choice: the experts form `groups` equal runs; a token chooses among the
  // experts of its `top_groups` best ones (by the sum of their two best scores).
  std::int64_t groups = 1;
  std::int64_t top_groups = 1;
  double routed_scale = 1.0;  ///< factor of all routing weights
  /// Balancing without a loss (Wang et al., arXiv 2408.15664): a bias per expert enters
  /// the choice, not the weights, and moves by this much against the imbalance of each
  /// step; 0: no bias.
  double bias_update_rate = 0.0;
  DropConfig drop;
};

struct ModelConfig {
  Family family = Family::kMixtral;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn = 0;  ///< of the dense layers; 0 when there are none
  std::int64_t vocab = 0;
  double rope_theta = 1.0e6;
  double norm_eps = 1.0e-5;
  bool qkv_bias = false;
  bool qk_norm = false;
  bool tied = false;
  double init_std = 0.02;
  MoeConfig moe;
  std::vector<bool> moe_layer;  ///< [layers]; true: MoE, false: dense SwiGLU

  /// Elements in a row of the fused projection: (heads + 2 kv_heads) head_dim.
  std::int64_t qkv_size() const { return (heads + 2 * kv_heads) * head_dim; }
  std::int64_t q_size() const { return heads * head_dim; }
  bool has_dense_layers() const;
  bool has_moe_layers() const;
};

/// \brief Checks that the sizes fit together (kv_heads divides heads, head_dim even,
/// top_k <= experts, moe_layer has `layers` entries, ...). \throws InputError PL06xx
void validate(const ModelConfig& config);

/// \brief Names accepted by `model.preset`.
const std::vector<std::string>& preset_names();

/// \brief A published model's shape. \throws InputError PL0601 names the nearest preset
ModelConfig preset(std::string_view name);

struct ParameterCount {
  std::int64_t total = 0;
  /// Parameters that one token meets: top_k of the experts, everything else once.
  std::int64_t active = 0;
};
ParameterCount count_parameters(const ModelConfig& config);

/// \brief Model FLOPs of training (forward and backward) per token.
struct FlopCount {
  double full_attention = 0.0;    ///< scores counted without the causal mask
  double causal_attention = 0.0;  ///< scores halved
};
FlopCount training_flops_per_token(const ModelConfig& config, std::int64_t sequence);

/// \brief Training FLOPs of one layer per token, scores halved.
double layer_flops_per_token(const ModelConfig& config, bool is_moe,
                             std::int64_t sequence);
/// \brief Training FLOPs of the head per token.
double head_flops_per_token(const ModelConfig& config);

}  // namespace pleat::plan
