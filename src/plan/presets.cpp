// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Published shapes; docs/models.md says what the numbers count.
#include <array>

#include <fmt/ranges.h>

#include "pleat/base/error.hpp"
#include "pleat/base/spelling.hpp"
#include "pleat/plan/model_config.hpp"

namespace pleat::plan {
namespace {

ModelConfig with_moe_layers(std::int64_t layers) {
  ModelConfig config;
  config.layers = layers;
  config.moe_layer.assign(static_cast<std::size_t>(layers), true);
  return config;
}

ModelConfig mixtral_8x7b() {
  ModelConfig config = with_moe_layers(32);
  config.family = Family::kMixtral;
  config.hidden = 4096;
  config.heads = 32;
  config.kv_heads = 8;
  config.head_dim = 128;
  config.vocab = 32000;
  config.rope_theta = 1.0e6;
  config.norm_eps = 1.0e-5;
  config.moe.experts = 8;
  config.moe.top_k = 2;
  config.moe.ffn = 14336;
  return config;
}

ModelConfig mixtral_8x22b() {
  ModelConfig config = mixtral_8x7b();
  config.layers = 56;
  config.moe_layer.assign(56, true);
  config.hidden = 6144;
  config.heads = 48;
  config.moe.ffn = 16384;
  return config;
}

/// The fine-grained variant: each expert of 8x22B cut into eight.
ModelConfig mixtral_8x22b_g8t8() {
  ModelConfig config = mixtral_8x22b();
  config.moe.experts = 64;
  config.moe.top_k = 8;
  config.moe.ffn = 2048;
  return config;
}

/// Llama 3 70B with every feed-forward layer made eight experts.
ModelConfig llama3_8x70b() {
  ModelConfig config = mixtral_8x7b();
  config.layers = 80;
  config.moe_layer.assign(80, true);
  config.hidden = 8192;
  config.heads = 64;
  config.vocab = 128256;
  config.rope_theta = 5.0e5;
  config.moe.ffn = 28672;
  return config;
}

ModelConfig qwen2_57b_a14b() {
  ModelConfig config = with_moe_layers(28);
  config.family = Family::kQwen2Moe;
  config.hidden = 3584;
  config.heads = 28;
  config.kv_heads = 4;
  config.head_dim = 128;
  config.vocab = 151936;
  config.rope_theta = 1.0e6;
  config.norm_eps = 1.0e-6;
  config.qkv_bias = true;
  config.moe.experts = 64;
  config.moe.top_k = 8;
  config.moe.ffn = 2560;
  config.moe.shared_ffn = 20480;
  config.moe.shared_gate = true;
  config.moe.normalize = false;
  return config;
}

ModelConfig qwen3_30b_a3b() {
  ModelConfig config = with_moe_layers(48);
  config.family = Family::kQwen3Moe;
  config.hidden = 2048;
  config.heads = 32;
  config.kv_heads = 4;
  config.head_dim = 128;
  config.vocab = 151936;
  config.rope_theta = 1.0e6;
  config.norm_eps = 1.0e-6;
  config.qk_norm = true;
  config.moe.experts = 128;
  config.moe.top_k = 8;
  config.moe.ffn = 768;
  return config;
}

ModelConfig qwen3_235b_a22b() {
  ModelConfig config = qwen3_30b_a3b();
  config.layers = 94;
  config.moe_layer.assign(94, true);
  config.hidden = 4096;
  config.heads = 64;
  config.moe.ffn = 1536;
  return config;
}

struct Preset {
  const char* name;
  ModelConfig (*make)();
};

constexpr std::array<Preset, 7> kPresets{{
    {"mixtral-8x7b", mixtral_8x7b},
    {"mixtral-8x22b", mixtral_8x22b},
    {"mixtral-8x22b-g8t8", mixtral_8x22b_g8t8},
    {"llama3-8x70b", llama3_8x70b},
    {"qwen2-57b-a14b", qwen2_57b_a14b},
    {"qwen3-30b-a3b", qwen3_30b_a3b},
    {"qwen3-235b-a22b", qwen3_235b_a22b},
}};

}  // namespace

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const Preset& preset : kPresets) list.emplace_back(preset.name);
    return list;
  }();
  return names;
}

ModelConfig preset(std::string_view name) {
  for (const Preset& candidate : kPresets) {
    if (name == candidate.name) return candidate.make();
  }
  const std::string nearest = nearest_spelling(name, preset_names());
  PLEAT_FAIL(InputError, "PL0601", "there is no preset '{}'{}\nHINT: the presets are {}.",
             name, nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest),
             fmt::join(preset_names(), ", "));
}

}  // namespace pleat::plan
