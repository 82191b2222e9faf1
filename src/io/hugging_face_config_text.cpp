// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "pleat/base/error.hpp"
#include "pleat/io/hugging_face.hpp"
#include "pleat/io/hugging_face_detail.hpp"

namespace pleat::io {

namespace {

using Json = nlohmann::ordered_json;
using plan::Family;
using plan::ModelConfig;

const char* family_name(Family family) {
  return detail::kFamilyNames[static_cast<std::size_t>(family)].second;
}

const char* type_name(ElementType type) {
  return detail::kTypeNames[static_cast<std::size_t>(type)].second;
}

const char* architecture(Family family) {
  switch (family) {
    case Family::kMixtral:
      return "MixtralForCausalLM";
    case Family::kQwen2Moe:
      return "Qwen2MoeForCausalLM";
    default:
      return "Qwen3MoeForCausalLM";
  }
}

/// Softmax over the chosen logits equals softmax over all, divided by the sum of the
/// chosen.
bool normalizes(const plan::MoeConfig& moe) {
  return moe.normalize || moe.score == plan::RouterScore::kSoftmaxAfterTopK;
}

std::vector<std::int64_t> dense_layers(const ModelConfig& model) {
  std::vector<std::int64_t> layers;
  for (std::size_t l = 0; l < model.moe_layer.size(); ++l) {
    if (!model.moe_layer[l]) layers.push_back(static_cast<std::int64_t>(l));
  }
  return layers;
}

/// The two library generations look for the rope frequency and the type in different
/// keys; both get theirs.
void set_for_both_generations(Json& tree, const ModelConfig& model, ElementType type) {
  if (!tree.contains("rope_parameters") || !tree["rope_parameters"].is_object()) {
    tree["rope_parameters"] = Json::object();
  }
  tree["rope_parameters"]["rope_theta"] = model.rope_theta;
  tree["rope_parameters"]["rope_type"] = "default";
  tree["rope_theta"] = model.rope_theta;
  tree["dtype"] = type_name(type);
  tree["torch_dtype"] = type_name(type);
}

/// The keys of the experts must be sound even where no layer has any.
plan::MoeConfig described_moe(const ModelConfig& model) {
  plan::MoeConfig moe = model.moe;
  if (model.has_moe_layers()) return moe;
  moe.experts = 1;
  moe.top_k = 1;
  moe.ffn = model.ffn;
  moe.shared_ffn = model.ffn;
  return moe;
}

void set_common(Json& tree, const ModelConfig& model) {
  tree["architectures"] = {architecture(model.family)};
  tree["model_type"] = family_name(model.family);
  tree["hidden_act"] = "silu";
  tree["hidden_size"] = model.hidden;
  tree["num_hidden_layers"] = model.layers;
  tree["num_attention_heads"] = model.heads;
  tree["num_key_value_heads"] = model.kv_heads;
  tree["head_dim"] = model.head_dim;
  tree["vocab_size"] = model.vocab;
  tree["rms_norm_eps"] = model.norm_eps;
  tree["initializer_range"] = model.init_std;
  tree["tie_word_embeddings"] = model.tied;
  tree["num_experts_per_tok"] = described_moe(model).top_k;
  tree["router_aux_loss_coef"] = model.moe.auxiliary_coefficient;
  tree["attention_dropout"] = 0.0;
  tree["sliding_window"] = nullptr;
  tree["bos_token_id"] = nullptr;
  tree["eos_token_id"] = nullptr;
  tree["pad_token_id"] = nullptr;
}

void set_qwen(Json& tree, const ModelConfig& model) {
  const plan::MoeConfig moe = described_moe(model);
  tree["num_experts"] = moe.experts;
  tree["moe_intermediate_size"] = moe.ffn;
  tree["intermediate_size"] = model.has_dense_layers() ? model.ffn : moe.ffn;
  tree["norm_topk_prob"] = normalizes(moe);
  tree["decoder_sparse_step"] = 1;
  tree["mlp_only_layers"] = dense_layers(model);
  tree["use_sliding_window"] = false;
  if (model.family == Family::kQwen2Moe) {
    tree["qkv_bias"] = model.qkv_bias;
    tree["shared_expert_intermediate_size"] = moe.shared_ffn;
  } else {
    tree["attention_bias"] = false;
  }
}

Json fresh(const ModelConfig& model) {
  Json tree = Json::object();
  set_common(tree, model);
  if (model.family == Family::kMixtral) {
    tree["num_local_experts"] = described_moe(model).experts;
    tree["intermediate_size"] = described_moe(model).ffn;
    tree["router_jitter_noise"] = 0.0;
  } else {
    set_qwen(tree, model);
  }
  return tree;
}

/// Fields of the mathematics in which two models differ, as seen by a family.
std::vector<std::string> differences(const ModelConfig& a, const ModelConfig& b) {
  std::vector<std::string> found;
  const auto compare = [&found](const char* name, auto left, auto right) {
    if (left != right) found.emplace_back(name);
  };
  compare("family", a.family, b.family);
  compare("layers", a.layers, b.layers);
  compare("hidden", a.hidden, b.hidden);
  compare("heads", a.heads, b.heads);
  compare("kv_heads", a.kv_heads, b.kv_heads);
  compare("head_dim", a.head_dim, b.head_dim);
  compare("ffn", a.has_dense_layers() ? a.ffn : 0, b.has_dense_layers() ? b.ffn : 0);
  compare("vocab", a.vocab, b.vocab);
  compare("rope_theta", a.rope_theta, b.rope_theta);
  compare("norm_eps", a.norm_eps, b.norm_eps);
  compare("qkv_bias", a.qkv_bias, b.qkv_bias);
  compare("qk_norm", a.qk_norm, b.qk_norm);
  compare("tied", a.tied, b.tied);
  compare("moe_layer", a.moe_layer, b.moe_layer);
  if (!a.has_moe_layers() && !b.has_moe_layers()) return found;
  compare("moe.experts", a.moe.experts, b.moe.experts);
  compare("moe.top_k", a.moe.top_k, b.moe.top_k);
  compare("moe.ffn", a.moe.ffn, b.moe.ffn);
  compare("moe.shared_ffn", a.moe.shared_ffn, b.moe.shared_ffn);
  compare("moe.shared_gate", a.moe.shared_gate, b.moe.shared_gate);
  compare("moe.normalize", normalizes(a.moe), normalizes(b.moe));
  return found;
}

/// The original tree where it still describes the model, else one made anew.
Json base_tree(const ModelConfig& model, const std::string& original) {
  if (original.empty()) return fresh(model);
  const HuggingFaceConfig config = parse_hugging_face_config(original, "config.json");
  return differences(model, config.model).empty() ? Json::parse(original) : fresh(model);
}

}  // namespace

std::string hugging_face_config_text(const ModelConfig& model, ElementType type,
                                     const std::string& original) {
  Json tree = base_tree(model, original);
  set_for_both_generations(tree, model, type);
  tree["router_aux_loss_coef"] = model.moe.auxiliary_coefficient;
  const std::string text = tree.dump(2) + "\n";
  // What does not survive reading back cannot be said in this family's config.json.
  const HuggingFaceConfig written = parse_hugging_face_config(text, "config.json");
  const std::vector<std::string> lost = differences(model, written.model);
  PLEAT_REQUIRE(lost.empty(), InputError, "PL0409",
                "this model cannot be written as '{}': that family has no way to say {}",
                family_name(model.family), fmt::join(lost, ", "));
  return text;
}

}  // namespace pleat::io
