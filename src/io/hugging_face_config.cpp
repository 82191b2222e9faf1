// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "pleat/base/error.hpp"
#include "pleat/io/durable_file.hpp"
#include "pleat/io/hugging_face.hpp"
#include "pleat/io/hugging_face_detail.hpp"
#include "pleat/io/json.hpp"
#include "pleat/io/places.hpp"

namespace pleat::io {

namespace {

using nlohmann::json;

constexpr std::int64_t kLargestSize = std::int64_t{1} << 31;
constexpr std::int64_t kLargestLayers = 1 << 16;

/// Typed access to the keys of a config.json.
class Keys {
 public:
  Keys(const json& tree, const std::string& place) : tree_(tree), place_(place) {}

  /// Absent and null are the same to transformers.
  bool has(const char* key) const { return tree_.contains(key) && !tree_[key].is_null(); }

  std::int64_t integer(const char* key, std::int64_t least,
                       std::int64_t most = kLargestSize) const {
    const json& value = need(key);
    PLEAT_REQUIRE(value.is_number_integer(), InputError, "PL0406",
                  "{}: '{}' is {}, expected an integer", place_, key, value.dump());
    const bool inside =
        value.is_number_unsigned()
            ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most) &&
                  value.get<std::int64_t>() >= least
            : value.get<std::int64_t>() >= least;
    PLEAT_REQUIRE(inside, InputError, "PL0406", "{}: '{}' is {}, expected {} to {}",
                  place_, key, value.dump(), least, most);
    return value.get<std::int64_t>();
  }
  std::int64_t integer_or(const char* key, std::int64_t fallback,
                          std::int64_t least) const {
    return has(key) ? integer(key, least) : fallback;
  }
  double real(const char* key) const {
    const json& value = need(key);
    PLEAT_REQUIRE(value.is_number() && std::isfinite(value.get<double>()), InputError,
                  "PL0406", "{}: '{}' is {}, expected a number", place_, key,
                  value.dump());
    return value.get<double>();
  }
  double real_or(const char* key, double fallback) const {
    return has(key) ? real(key) : fallback;
  }
  bool flag_or(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    PLEAT_REQUIRE(tree_[key].is_boolean(), InputError, "PL0406",
                  "{}: '{}' is {}, expected true or false", place_, key,
                  tree_[key].dump());
    return tree_[key].get<bool>();
  }
  std::string text_or(const char* key, const std::string& fallback) const {
    if (!has(key)) return fallback;
    PLEAT_REQUIRE(tree_[key].is_string(), InputError, "PL0406",
                  "{}: '{}' is {}, expected a text", place_, key, tree_[key].dump());
    return tree_[key].get<std::string>();
  }
  const json& need(const char* key) const {
    PLEAT_REQUIRE(has(key), InputError, "PL0406", "{} has no '{}'", place_, key);
    return tree_[key];
  }
  Keys object(const char* key) const {
    const json& value = need(key);
    PLEAT_REQUIRE(value.is_object(), InputError, "PL0406", "{}: '{}' is not an object",
                  place_, key);
    return {value, place_ + ": " + key};
  }
  const std::string& place() const { return place_; }

  /// Refuses an option of the mathematics that Pleat does not have.
  void refuse_unless(bool inactive, const char* key) const {
    PLEAT_REQUIRE(inactive, InputError, "PL0407",
                  "{}: '{}' is {}, which Pleat does not implement", place_, key,
                  tree_[key].dump());
  }

 private:
  const json& tree_;
  std::string place_;
};

plan::Family read_family(const Keys& keys) {
  const std::string name = keys.text_or("model_type", "");
  for (const auto& [family, text] : detail::kFamilyNames) {
    if (name == text) return family;
  }
  PLEAT_FAIL(InputError, "PL0407",
             "{}: 'model_type' is '{}', expected mixtral, qwen2_moe or qwen3_moe",
             keys.place(), name);
}

/// Everything that changes the mathematics beyond what Pleat computes must be switched
/// off.
void refuse_foreign_options(const Keys& keys, plan::Family family) {
  const std::string activation = keys.text_or("hidden_act", "silu");
  keys.refuse_unless(activation == "silu" || activation == "swish", "hidden_act");
  keys.refuse_unless(!keys.flag_or("attention_bias", false), "attention_bias");
  keys.refuse_unless(keys.real_or("attention_dropout", 0.0) == 0.0, "attention_dropout");
  keys.refuse_unless(keys.real_or("router_jitter_noise", 0.0) == 0.0,
                     "router_jitter_noise");
  keys.refuse_unless(!keys.has("quantization_config"), "quantization_config");
  // The Qwen families look at sliding_window only if use_sliding_window says so.
  keys.refuse_unless(!keys.flag_or("use_sliding_window", false), "use_sliding_window");
  if (family == plan::Family::kMixtral && keys.has("sliding_window")) {
    keys.refuse_unless(keys.integer("sliding_window", 0) == 0, "sliding_window");
  }
  if (!keys.has("layer_types")) return;
  const json& types = keys.need("layer_types");
  keys.refuse_unless(types.is_array() && std::all_of(types.begin(), types.end(),
                                                     [](const json& type) {
                                                       return type == "full_attention";
                                                     }),
                     "layer_types");
}

/// One fact under the keys at which it was found. Where they differ nothing says which of
/// them the weights were made with.
template <class T>
T agreed(const Keys& keys, const std::vector<std::pair<std::string, T>>& found) {
  const auto& [first, value] = found.front();
  for (const auto& [key, other] : found) {
    PLEAT_REQUIRE(other == value, InputError, "PL0410",
                  "{}: '{}' is {}, but '{}' is {}\nHINT: remove the key that is wrong; "
                  "the publisher's config.json tells.",
                  keys.place(), first, value, key, other);
  }
  return value;
}

/// transformers 5 writes `rope_parameters`, earlier ones `rope_theta` and `rope_scaling`.
double read_rope_theta(const Keys& keys) {
  std::vector<std::pair<std::string, double>> found;
  if (keys.has("rope_theta")) found.emplace_back("rope_theta", keys.real("rope_theta"));
  for (const std::string key : {"rope_parameters", "rope_scaling"}) {
    if (!keys.has(key.c_str())) continue;
    const Keys rope = keys.object(key.c_str());
    const bool plain = rope.text_or("rope_type", "default") == "default" &&
                       rope.text_or("type", "default") == "default" &&
                       rope.real_or("partial_rotary_factor", 1.0) == 1.0;
    keys.refuse_unless(plain, key.c_str());
    if (rope.has("rope_theta"))
      found.emplace_back(key + ".rope_theta", rope.real("rope_theta"));
  }
  return found.empty() ? keys.real("rope_theta") : agreed(keys, found);
}

std::int64_t read_experts(const Keys& keys) {
  std::vector<std::pair<std::string, std::int64_t>> found;
  for (const char* key : {"num_experts", "num_local_experts"}) {
    if (keys.has(key)) found.emplace_back(key, keys.integer(key, 1));
  }
  return found.empty() ? keys.integer("num_local_experts", 1) : agreed(keys, found);
}

void read_mixtral(const Keys& keys, plan::ModelConfig& model) {
  model.norm_eps = keys.real_or("rms_norm_eps", 1e-5);
  model.moe.ffn = keys.integer("intermediate_size", 1);
  model.moe.normalize = true;
  model.moe.auxiliary_coefficient = keys.real_or("router_aux_loss_coef", 0.001);
  model.moe_layer.assign(static_cast<std::size_t>(model.layers), true);
}

/// Layer l is MoE unless listed in mlp_only_layers or skipped by decoder_sparse_step.
std::vector<bool> read_qwen_pattern(const Keys& keys, std::int64_t layers) {
  const std::int64_t step = keys.integer_or("decoder_sparse_step", 1, 1);
  std::vector<bool> moe_layer(static_cast<std::size_t>(layers));
  for (std::int64_t l = 0; l < layers; ++l) {
    moe_layer[static_cast<std::size_t>(l)] = (l + 1) % step == 0;
  }
  if (!keys.has("mlp_only_layers")) return moe_layer;
  const json& dense = keys.need("mlp_only_layers");
  PLEAT_REQUIRE(dense.is_array(), InputError, "PL0406",
                "{}: 'mlp_only_layers' is not an array", keys.place());
  for (const json& layer : dense) {
    const bool sound = layer.is_number_unsigned() &&
                       layer.get<std::uint64_t>() < static_cast<std::uint64_t>(layers);
    PLEAT_REQUIRE(sound, InputError, "PL0406",
                  "{}: 'mlp_only_layers' names layer {}, expected 0 to {}", keys.place(),
                  layer.dump(), layers - 1);
    moe_layer[layer.get<std::size_t>()] = false;
  }
  return moe_layer;
}

void read_qwen(const Keys& keys, plan::ModelConfig& model) {
  model.norm_eps = keys.real_or("rms_norm_eps", 1e-6);
  model.moe.ffn = keys.integer("moe_intermediate_size", 1);
  model.moe.normalize = keys.flag_or("norm_topk_prob", false);
  model.moe.auxiliary_coefficient = keys.real_or("router_aux_loss_coef", 0.001);
  model.moe_layer = read_qwen_pattern(keys, model.layers);
  if (model.has_dense_layers()) model.ffn = keys.integer("intermediate_size", 1);
  if (model.family == plan::Family::kQwen2Moe) {
    model.qkv_bias = keys.flag_or("qkv_bias", true);
    model.moe.shared_ffn = keys.integer("shared_expert_intermediate_size", 1);
    model.moe.shared_gate = true;
  } else {
    model.qk_norm = true;
  }
}

plan::ModelConfig read_model(const Keys& keys) {
  plan::ModelConfig model;
  model.family = read_family(keys);
  refuse_foreign_options(keys, model.family);
  model.layers = keys.integer("num_hidden_layers", 1, kLargestLayers);
  model.hidden = keys.integer("hidden_size", 1);
  model.heads = keys.integer("num_attention_heads", 1);
  model.kv_heads = keys.integer_or("num_key_value_heads", model.heads, 1);
  model.head_dim = keys.integer_or("head_dim", model.hidden / model.heads, 1);
  model.vocab = keys.integer("vocab_size", 1);
  model.rope_theta = read_rope_theta(keys);
  model.init_std = keys.real_or("initializer_range", 0.02);
  model.tied = keys.flag_or("tie_word_embeddings", false);
  model.moe.experts = read_experts(keys);
  model.moe.top_k = keys.integer("num_experts_per_tok", 1);
  if (model.family == plan::Family::kMixtral) {
    read_mixtral(keys, model);
  } else {
    read_qwen(keys, model);
  }
  return model;
}

/// The sizes must fit together; the message gets the file's name.
void check_sizes(const plan::ModelConfig& model, const std::string& place) {
  try {
    plan::validate(model);
  } catch (const InputError& error) {
    throw InputError(error.id(),
                     place + ": " + std::string(error.what() + error.id().size() + 2));
  }
}

ElementType read_type(const Keys& keys) {
  const std::string name = keys.text_or("dtype", keys.text_or("torch_dtype", "float32"));
  for (const auto& [type, text] : detail::kTypeNames) {
    if (name == text) return type;
  }
  PLEAT_FAIL(InputError, "PL0407",
             "{}: the data type '{}' is none of float64, float32, float16, bfloat16",
             keys.place(), name);
}

}  // namespace

bool is_hugging_face_folder(const std::string& path) {
  return is_plain_file(path + "/config.json");
}

HuggingFaceConfig parse_hugging_face_config(const std::string& text,
                                            const std::string& place) {
  const json tree = parse_json(text, "'" + place + "'");
  const Keys keys(tree, "'" + place + "'");
  HuggingFaceConfig config{read_model(keys), read_type(keys), text};
  check_sizes(config.model, keys.place());
  return config;
}

HuggingFaceConfig read_hugging_face_config(const std::string& folder) {
  const std::string path = folder + "/config.json";
  PLEAT_REQUIRE(is_hugging_face_folder(folder), InputError, "PL0406",
                "'{}' is not a model folder: it has no config.json", folder);
  return parse_hugging_face_config(read_small_file(path, 1 << 20), path);
}

}  // namespace pleat::io
