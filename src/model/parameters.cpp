// SPDX-License-Identifier: Apache-2.0
#include "pleat/model/parameters.hpp"

#include <string>

#include <fmt/format.h>

namespace pleat::model {
namespace {

using plan::Family;
using plan::ModelConfig;
using tensor::Group;
using tensor::Initialisation;
using tensor::ParameterLayout;
using tensor::ParameterSpec;
using tensor::Shape;

/// The spelling of a family's tensor names inside one layer.
struct Names {
  std::string prefix;          ///< "model.layers.3."
  std::string moe;             ///< module that holds router and experts
  std::string gate, up, down;  ///< projections of one expert
};

Names names_of(Family family, std::int64_t layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  if (family == Family::kMixtral) {
    return {prefix, prefix + "block_sparse_moe.", "w1", "w3", "w2"};
  }
  return {prefix, prefix + "mlp.", "gate_proj", "up_proj", "down_proj"};
}

std::string expert_name(const Names& names, std::int64_t expert,
                        const std::string& projection) {
  return fmt::format("{}experts.{}.{}.weight", names.moe, expert, projection);
}

/// How a parameter starts and is summed.
struct Kind {
  Group group = Group::kDense;
  Initialisation initialisation = Initialisation::kNormal;
  bool counted = true;
  bool overwritten = false;
};

/// Of a projection, whose gradient is one product, times Context::gradient_beta() before.
constexpr Kind kProjection{.overwritten = true};
constexpr Kind kExpertProjection{.group = Group::kExpert, .overwritten = true};
constexpr Kind kReplicatedMatrix{.group = Group::kReplicated};
constexpr Kind kReplicatedOnes{.group = Group::kReplicated,
                               .initialisation = Initialisation::kOnes};

/// The given rows and columns of a matrix.
ParameterSpec matrix(std::string name, std::int64_t rows, std::int64_t columns,
                     const Slice& row, const Slice& column, const Kind& kind = {}) {
  return {.name = std::move(name),
          .global_shape = Shape{rows, columns},
          .group = kind.group,
          .initialisation = kind.initialisation,
          .local_shape = Shape{row.count, column.count},
          .local_offset = Shape{row.first, column.first},
          .counted = kind.counted,
          .overwritten = kind.overwritten};
}

Slice all(std::int64_t count) { return {0, count}; }

/// Adds a block and says of each tensor whether this rank writes it.
void add(const Placement& p, std::int64_t unit, std::vector<ParameterSpec> block,
         ParameterLayout& layout) {
  for (ParameterSpec& parameter : block) {
    parameter.written = parameter.counted && p.is_first_of(parameter.group);
  }
  layout.add_block(unit, std::move(block));
}

ParameterSpec whole_matrix(std::string name, std::int64_t rows, std::int64_t columns,
                           const Kind& kind = {}) {
  return matrix(std::move(name), rows, columns, all(rows), all(columns), kind);
}

ParameterSpec vector(std::string name, std::int64_t size, const Slice& slice,
                     const Kind& kind) {
  return {.name = std::move(name),
          .global_shape = Shape{size},
          .group = kind.group,
          .initialisation = kind.initialisation,
          .local_shape = Shape{slice.count},
          .local_offset = Shape{slice.first},
          .counted = kind.counted};
}

ParameterSpec norm_weight(std::string name, std::int64_t size) {
  return vector(std::move(name), size, all(size), kReplicatedOnes);
}

/// The rows of some heads.
Slice head_rows(const Slice& heads, std::int64_t head_dim) {
  return {heads.first * head_dim, heads.count * head_dim};
}

void add_attention(const Placement& p, const Names& names, std::int64_t unit,
                   ParameterLayout& layout) {
  const ModelConfig& config = p.whole;
  const std::string self = names.prefix + "self_attn.";
  const std::int64_t kv = config.kv_heads * config.head_dim;
  const Slice q_rows = head_rows(p.heads, config.head_dim);
  const Slice kv_rows = head_rows(p.kv_heads, config.head_dim);
  const Slice hidden = all(config.hidden);
  const bool first_copy = p.kv_replica == 0;
  const Kind kv_kind{.counted = first_copy, .overwritten = true};
  add(p, unit, {norm_weight(names.prefix + "input_layernorm.weight", config.hidden)},
      layout);
  add(p, unit,
      {matrix(self + "q_proj.weight", config.q_size(), config.hidden, q_rows, hidden,
              kProjection),
       matrix(self + "k_proj.weight", kv, config.hidden, kv_rows, hidden, kv_kind),
       matrix(self + "v_proj.weight", kv, config.hidden, kv_rows, hidden, kv_kind)},
      layout);
  if (config.qkv_bias) {
    const Kind q_bias{.initialisation = Initialisation::kZeros};
    const Kind kv_bias{.initialisation = Initialisation::kZeros, .counted = first_copy};
    add(p, unit,
        {vector(self + "q_proj.bias", config.q_size(), q_rows, q_bias),
         vector(self + "k_proj.bias", kv, kv_rows, kv_bias),
         vector(self + "v_proj.bias", kv, kv_rows, kv_bias)},
        layout);
  }
  if (config.qk_norm) {
    add(p, unit, {norm_weight(self + "q_norm.weight", config.head_dim)}, layout);
    add(p, unit, {norm_weight(self + "k_norm.weight", config.head_dim)}, layout);
  }
  add(p, unit,
      {matrix(self + "o_proj.weight", config.hidden, config.q_size(), hidden, q_rows,
              kProjection)},
      layout);
}

/// A SwiGLU under `prefix`: the rows of `slice` of gate and up as one block, then its
/// columns of down.
void add_feed_forward(const Placement& p, const std::string& prefix, std::int64_t ffn,
                      const Slice& slice, std::int64_t unit, ParameterLayout& layout) {
  const std::int64_t hidden = p.whole.hidden;
  add(p, unit,
      {matrix(prefix + "gate_proj.weight", ffn, hidden, slice, all(hidden), kProjection),
       matrix(prefix + "up_proj.weight", ffn, hidden, slice, all(hidden), kProjection)},
      layout);
  add(p, unit,
      {matrix(prefix + "down_proj.weight", hidden, ffn, all(hidden), slice, kProjection)},
      layout);
}

void add_experts(const Placement& p, const Names& names, std::int64_t unit,
                 ParameterLayout& layout) {
  const std::int64_t hidden = p.whole.hidden;
  const std::int64_t ffn = p.whole.moe.ffn;
  std::vector<ParameterSpec> gate_up;
  std::vector<ParameterSpec> down;
  for (std::int64_t e = p.experts.first; e < p.experts.end(); ++e) {
    for (const std::string& projection : {names.gate, names.up}) {
      gate_up.push_back(matrix(expert_name(names, e, projection), ffn, hidden,
                               p.expert_ffn, all(hidden), kExpertProjection));
    }
    down.push_back(matrix(expert_name(names, e, names.down), hidden, ffn, all(hidden),
                          p.expert_ffn, kExpertProjection));
  }
  add(p, unit, std::move(gate_up), layout);
  add(p, unit, std::move(down), layout);
}

void add_moe(const Placement& p, const Names& names, std::int64_t unit,
             ParameterLayout& layout) {
  const ModelConfig& config = p.whole;
  add(p, unit,
      {whole_matrix(names.moe + "gate.weight", config.moe.experts, config.hidden,
                    kReplicatedMatrix)},
      layout);
  if (config.moe.bias_update_rate > 0.0) {
    add(p, unit,
        {vector(names.moe + "gate.e_score_correction_bias", config.moe.experts,
                all(config.moe.experts),
                {Group::kReplicated, Initialisation::kZeros, true})},
        layout);
  }
  if (config.moe.shared_ffn > 0) {
    add_feed_forward(p, names.moe + "shared_expert.", config.moe.shared_ffn, p.shared_ffn,
                     unit, layout);
  }
  if (config.moe.shared_gate) {
    add(p, unit,
        {whole_matrix(names.moe + "shared_expert_gate.weight", 1, config.hidden,
                      kReplicatedMatrix)},
        layout);
  }
  add_experts(p, names, unit, layout);
}

void add_layer(const Placement& p, std::int64_t layer, ParameterLayout& layout) {
  const ModelConfig& config = p.whole;
  const Names names = names_of(config.family, layer);
  const std::int64_t unit = layer_unit(layer);
  add_attention(p, names, unit, layout);
  add(p, unit,
      {norm_weight(names.prefix + "post_attention_layernorm.weight", config.hidden)},
      layout);
  if (config.moe_layer[static_cast<std::size_t>(layer)]) {
    add_moe(p, names, unit, layout);
  } else {
    add_feed_forward(p, names.prefix + "mlp.", config.ffn, p.ffn, unit, layout);
  }
}

/// The views of the local part. `part` has this rank's heads and ffn.
template <class T>
FeedForwardTensors<T> bind_feed_forward(const std::string& prefix, std::int64_t hidden,
                                        std::int64_t ffn,
                                        const tensor::FlatTensors<T>& tensors) {
  return {tensors.template fused<2>(prefix + "gate_proj.weight", 2 * ffn, hidden),
          tensors.template fused<2>(prefix + "down_proj.weight", hidden, ffn)};
}

template <class T>
void bind_moe(const Placement& p, const Names& names,
              const tensor::FlatTensors<T>& tensors, BlockTensors<T>& block) {
  const plan::MoeConfig& moe = p.part.moe;
  const std::int64_t hidden = p.whole.hidden;
  const std::int64_t experts = p.experts.count;
  const std::string first_gate = expert_name(names, p.experts.first, names.gate);
  const std::string first_down = expert_name(names, p.experts.first, names.down);
  block.router_ED =
      tensors.template fused<2>(names.moe + "gate.weight", moe.experts, hidden);
  if (moe.bias_update_rate > 0.0) {
    block.router_bias_E = tensors.template fused<1>(
        names.moe + "gate.e_score_correction_bias", moe.experts);
  }
  block.w13_E2FD = tensors.template fused<3>(first_gate, experts, 2 * moe.ffn, hidden);
  block.w2_EDF = tensors.template fused<3>(first_down, experts, hidden, moe.ffn);
  if (p.whole.moe.shared_ffn > 0) {
    block.shared = bind_feed_forward<T>(names.moe + "shared_expert.", hidden,
                                        moe.shared_ffn, tensors);
  }
  if (moe.shared_gate) {
    block.shared_gate_1D =
        tensors.template fused<2>(names.moe + "shared_expert_gate.weight", 1, hidden);
  }
}

template <class T>
BlockTensors<T> bind_block(const Placement& p, std::int64_t layer,
                           const tensor::FlatTensors<T>& tensors) {
  const ModelConfig& config = p.part;
  const Names names = names_of(config.family, layer);
  const std::string self = names.prefix + "self_attn.";
  BlockTensors<T> block;
  block.attention_norm_D =
      tensors.template fused<1>(names.prefix + "input_layernorm.weight", config.hidden);
  block.qkv_QD =
      tensors.template fused<2>(self + "q_proj.weight", config.qkv_size(), config.hidden);
  if (config.qkv_bias) {
    block.qkv_bias_Q = tensors.template fused<1>(self + "q_proj.bias", config.qkv_size());
  }
  if (config.qk_norm) {
    block.q_norm_d = tensors.template fused<1>(self + "q_norm.weight", config.head_dim);
    block.k_norm_d = tensors.template fused<1>(self + "k_norm.weight", config.head_dim);
  }
  block.out_DO =
      tensors.template fused<2>(self + "o_proj.weight", config.hidden, config.q_size());
  block.ffn_norm_D = tensors.template fused<1>(
      names.prefix + "post_attention_layernorm.weight", config.hidden);
  if (config.moe_layer[static_cast<std::size_t>(layer)]) {
    bind_moe<T>(p, names, tensors, block);
  } else {
    block.dense =
        bind_feed_forward<T>(names.prefix + "mlp.", config.hidden, config.ffn, tensors);
  }
  return block;
}

}  // namespace

std::shared_ptr<const ParameterLayout> parameter_layout(const Placement& p) {
  auto layout = std::make_shared<ParameterLayout>();
  const ModelConfig& config = p.whole;
  const Slice hidden = all(config.hidden);
  const Kind embedding{.counted = p.has_embedding};
  if (p.has_embedding || p.has_tied_copy()) {
    add(p, embedding_unit(),
        {matrix("model.embed_tokens.weight", config.vocab, config.hidden, p.vocab, hidden,
                embedding)},
        *layout);
  }
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (p.has_layer(layer)) add_layer(p, layer, *layout);
  }
  if (p.has_head) {
    add(p, head_unit(config), {norm_weight("model.norm.weight", config.hidden)}, *layout);
    if (!config.tied) {
      add(p, head_unit(config),
          {matrix("lm_head.weight", config.vocab, config.hidden, p.vocab, hidden,
                  kProjection)},
          *layout);
    }
  }
  layout->finalize(p.shards);
  return layout;
}

std::shared_ptr<const ParameterLayout> parameter_layout(const ModelConfig& config) {
  return parameter_layout(make_placement(config));
}

template <class T>
ModelTensors<T> bind_tensors(const Placement& p,
                             const std::vector<tensor::FlatTensors<T>>& by_unit) {
  const ModelConfig& config = p.whole;
  const auto unit = [&](std::int64_t index) -> const tensor::FlatTensors<T>& {
    return by_unit[static_cast<std::size_t>(index)];
  };
  const auto vocab_matrix = [&](std::int64_t index, const char* name) {
    return unit(index).template fused<2>(name, p.vocab.count, config.hidden);
  };
  ModelTensors<T> model;
  model.blocks.resize(static_cast<std::size_t>(config.layers));
  if (p.has_embedding) {
    model.embedding_VD = vocab_matrix(embedding_unit(), "model.embed_tokens.weight");
  }
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (!p.has_layer(layer)) continue;
    model.blocks[static_cast<std::size_t>(layer)] =
        bind_block<T>(p, layer, unit(layer_unit(layer)));
  }
  if (p.has_head) {
    const std::int64_t head = head_unit(config);
    model.final_norm_D = unit(head).template fused<1>("model.norm.weight", config.hidden);
    model.head_VD = config.tied
                        ? vocab_matrix(embedding_unit(), "model.embed_tokens.weight")
                        : vocab_matrix(head, "lm_head.weight");
  }
  return model;
}

template <class T>
ModelTensors<T> bind_tensors(const Placement& p, const tensor::FlatTensors<T>& tensors) {
  const auto units = static_cast<std::size_t>(head_unit(p.whole) + 1);
  return bind_tensors<T>(p, std::vector<tensor::FlatTensors<T>>(units, tensors));
}

#define PLEAT_INSTANTIATE(T)                                               \
  template ModelTensors<T> bind_tensors<T>(const Placement&,               \
                                           const tensor::FlatTensors<T>&); \
  template ModelTensors<T> bind_tensors<T>(const Placement&,               \
                                           const std::vector<tensor::FlatTensors<T>>&);
PLEAT_INSTANTIATE(float)
PLEAT_INSTANTIATE(double)
PLEAT_INSTANTIATE(Bf16)
#undef PLEAT_INSTANTIATE

}  // namespace pleat::model
