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
  std::string prefix;     ///< "model.layers.3."
  std::string moe;        ///< module that holds router and experts
  std::string gate, up, down;  ///< projections of one expert
};

Names names_of(Family family, std::int64_t layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  if (family == Family::kMixtral) {
    return {prefix, prefix + "block_sparse_moe.", "w1", "w3", "w2"};
  }
  return {prefix, prefix + "mlp.", "gate_proj", "up_proj", "down_proj"};
}

std::string expert_name(const Names& names, std::int64_t expert, const std::string& projection) {
  return fmt::format("{}experts.{}.{}.weight", names.moe, expert, projection);
}

ParameterSpec matrix(std::string name, std::int64_t rows, std::int64_t columns,
                     Group group = Group::kDense) {
  return {.name = std::move(name),
          .global_shape = Shape{rows, columns},
          .group = group,
          .initialisation = Initialisation::kNormal,
          .local_shape = {},
          .local_offset = {}};
}

ParameterSpec vector(std::string name, std::int64_t size, Initialisation initialisation) {
  return {.name = std::move(name),
          .global_shape = Shape{size},
          .group = Group::kDense,
          .initialisation = initialisation,
          .local_shape = {},
          .local_offset = {}};
}

void add_attention(const ModelConfig& config, const Names& names, ParameterLayout& layout) {
  const std::string self = names.prefix + "self_attn.";
  const std::int64_t kv = config.kv_heads * config.head_dim;
  layout.add_block({vector(names.prefix + "input_layernorm.weight", config.hidden,
                           Initialisation::kOnes)});
  layout.add_block({matrix(self + "q_proj.weight", config.q_size(), config.hidden),
                    matrix(self + "k_proj.weight", kv, config.hidden),
                    matrix(self + "v_proj.weight", kv, config.hidden)});
  if (config.qkv_bias) {
    layout.add_block({vector(self + "q_proj.bias", config.q_size(), Initialisation::kZeros),
                      vector(self + "k_proj.bias", kv, Initialisation::kZeros),
                      vector(self + "v_proj.bias", kv, Initialisation::kZeros)});
  }
  if (config.qk_norm) {
    layout.add_block({vector(self + "q_norm.weight", config.head_dim, Initialisation::kOnes)});
    layout.add_block({vector(self + "k_norm.weight", config.head_dim, Initialisation::kOnes)});
  }
  layout.add_block({matrix(self + "o_proj.weight", config.hidden, config.q_size())});
}

/// A SwiGLU under `prefix`: gate and up as one block, then down.
void add_feed_forward(const std::string& prefix, std::int64_t hidden, std::int64_t ffn,
                      ParameterLayout& layout) {
  layout.add_block({matrix(prefix + "gate_proj.weight", ffn, hidden),
                    matrix(prefix + "up_proj.weight", ffn, hidden)});
  layout.add_block({matrix(prefix + "down_proj.weight", hidden, ffn)});
}

void add_moe(const ModelConfig& config, const Names& names, ParameterLayout& layout) {
  layout.add_block({matrix(names.moe + "gate.weight", config.moe.experts, config.hidden)});
  if (config.moe.shared_ffn > 0) {
    add_feed_forward(names.moe + "shared_expert.", config.hidden, config.moe.shared_ffn, layout);
  }
  if (config.moe.shared_gate) {
    layout.add_block({matrix(names.moe + "shared_expert_gate.weight", 1, config.hidden)});
  }
  std::vector<ParameterSpec> gate_up;
  std::vector<ParameterSpec> down;
  for (std::int64_t e = 0; e < config.moe.experts; ++e) {
    gate_up.push_back(matrix(expert_name(names, e, names.gate), config.moe.ffn, config.hidden,
                             Group::kExpert));
    gate_up.push_back(matrix(expert_name(names, e, names.up), config.moe.ffn, config.hidden,
                             Group::kExpert));
    down.push_back(matrix(expert_name(names, e, names.down), config.hidden, config.moe.ffn,
                          Group::kExpert));
  }
  layout.add_block(std::move(gate_up));
  layout.add_block(std::move(down));
}

template <class T>
FeedForwardTensors<T> bind_feed_forward(const std::string& prefix, std::int64_t hidden,
                                        std::int64_t ffn,
                                        const tensor::FlatTensors<T>& tensors) {
  return {tensors.template fused<2>(prefix + "gate_proj.weight", 2 * ffn, hidden),
          tensors.template fused<2>(prefix + "down_proj.weight", hidden, ffn)};
}

template <class T>
void bind_moe(const ModelConfig& config, const Names& names,
              const tensor::FlatTensors<T>& tensors, BlockTensors<T>& block) {
  const plan::MoeConfig& moe = config.moe;
  block.router_ED =
      tensors.template fused<2>(names.moe + "gate.weight", moe.experts, config.hidden);
  block.w13_E2FD = tensors.template fused<3>(expert_name(names, 0, names.gate), moe.experts,
                                             2 * moe.ffn, config.hidden);
  block.w2_EDF = tensors.template fused<3>(expert_name(names, 0, names.down), moe.experts,
                                           config.hidden, moe.ffn);
  if (moe.shared_ffn > 0) {
    block.shared = bind_feed_forward<T>(names.moe + "shared_expert.", config.hidden,
                                     moe.shared_ffn, tensors);
  }
  if (moe.shared_gate) {
    block.shared_gate_1D = tensors.template fused<2>(names.moe + "shared_expert_gate.weight", 1,
                                                     config.hidden);
  }
}

template <class T>
BlockTensors<T> bind_block(const ModelConfig& config, std::int64_t layer,
                           const tensor::FlatTensors<T>& tensors) {
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
  block.out_DO = tensors.template fused<2>(self + "o_proj.weight", config.hidden, config.q_size());
  block.ffn_norm_D =
      tensors.template fused<1>(names.prefix + "post_attention_layernorm.weight", config.hidden);
  if (config.moe_layer[static_cast<std::size_t>(layer)]) {
    bind_moe<T>(config, names, tensors, block);
  } else {
    block.dense = bind_feed_forward<T>(names.prefix + "mlp.", config.hidden, config.ffn, tensors);
  }
  return block;
}

}  // namespace

std::shared_ptr<const ParameterLayout> parameter_layout(const ModelConfig& config) {
  auto layout = std::make_shared<ParameterLayout>();
  layout->add_block({matrix("model.embed_tokens.weight", config.vocab, config.hidden)});
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const Names names = names_of(config.family, layer);
    add_attention(config, names, *layout);
    layout->add_block({vector(names.prefix + "post_attention_layernorm.weight", config.hidden,
                              Initialisation::kOnes)});
    if (config.moe_layer[static_cast<std::size_t>(layer)]) {
      add_moe(config, names, *layout);
    } else {
      add_feed_forward(names.prefix + "mlp.", config.hidden, config.ffn, *layout);
    }
  }
  layout->add_block({vector("model.norm.weight", config.hidden, Initialisation::kOnes)});
  if (!config.tied) layout->add_block({matrix("lm_head.weight", config.vocab, config.hidden)});
  layout->finalize();
  return layout;
}

template <class T>
ModelTensors<T> bind_tensors(const ModelConfig& config, const tensor::FlatTensors<T>& tensors) {
  ModelTensors<T> model;
  model.embedding_VD =
      tensors.template fused<2>("model.embed_tokens.weight", config.vocab, config.hidden);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    model.blocks.push_back(bind_block<T>(config, layer, tensors));
  }
  model.final_norm_D = tensors.template fused<1>("model.norm.weight", config.hidden);
  model.head_VD = config.tied ? model.embedding_VD
                              : tensors.template fused<2>("lm_head.weight", config.vocab,
                                                          config.hidden);
  return model;
}

template ModelTensors<float> bind_tensors<float>(const ModelConfig&, const tensor::FlatTensors<float>&);
template ModelTensors<double> bind_tensors<double>(const ModelConfig&,
                                           const tensor::FlatTensors<double>&);

}  // namespace pleat::model
