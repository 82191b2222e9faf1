// SPDX-License-Identifier: Apache-2.0
#include "pleat/plan/model_config.hpp"

#include <algorithm>
#include <cmath>

#include "pleat/base/error.hpp"

namespace pleat::plan {
namespace {

void require_positive(const char* key, std::int64_t value) {
  PLEAT_REQUIRE(value >= 1, InputError, "PL0602",
                "model.{} = {}: expected a number of at least 1\n"
                "HINT: give every size of [model], or start from model.preset.",
                key, value);
}

void validate_attention(const ModelConfig& config) {
  require_positive("heads", config.heads);
  require_positive("kv_heads", config.kv_heads);
  require_positive("head_dim", config.head_dim);
  PLEAT_REQUIRE(config.heads % config.kv_heads == 0, InputError, "PL0603",
                "model.heads = {} is not a multiple of model.kv_heads = {}\n"
                "HINT: every key/value head serves the same number of query heads.",
                config.heads, config.kv_heads);
  PLEAT_REQUIRE(
      config.head_dim % 2 == 0, InputError, "PL0604",
      "model.head_dim = {} is odd\n"
      "HINT: the rotary embedding turns pairs of elements; choose an even number.",
      config.head_dim);
}

void validate_numbers(const ModelConfig& config) {
  PLEAT_REQUIRE(std::isfinite(config.rope_theta) && config.rope_theta > 0.0, InputError,
                "PL0605", "model.rope_theta = {}: expected a positive number",
                config.rope_theta);
  PLEAT_REQUIRE(std::isfinite(config.norm_eps) && config.norm_eps > 0.0, InputError,
                "PL0605", "model.norm_eps = {}: expected a positive number",
                config.norm_eps);
  PLEAT_REQUIRE(std::isfinite(config.init_std) && config.init_std >= 0.0, InputError,
                "PL0605", "model.init_std = {}: expected a number of at least 0",
                config.init_std);
}

void validate_pattern(const ModelConfig& config) {
  PLEAT_REQUIRE(static_cast<std::int64_t>(config.moe_layer.size()) == config.layers,
                InputError, "PL0606",
                "the pattern of dense and MoE layers has {} entries, the model {} layers",
                config.moe_layer.size(), config.layers);
  PLEAT_REQUIRE(!config.has_dense_layers() || config.ffn >= 1, InputError, "PL0607",
                "model.ffn = {}, but the model has dense layers\n"
                "HINT: set model.ffn, or make every layer a MoE layer.",
                config.ffn);
}

void validate_moe(const MoeConfig& moe) {
  PLEAT_REQUIRE(moe.experts >= 1, InputError, "PL0608",
                "moe.experts = {}: expected at least 1", moe.experts);
  PLEAT_REQUIRE(moe.top_k >= 1 && moe.top_k <= moe.experts, InputError, "PL0608",
                "moe.top_k = {}: expected 1 to moe.experts = {}\n"
                "HINT: a token cannot choose more experts than there are.",
                moe.top_k, moe.experts);
  PLEAT_REQUIRE(moe.ffn >= 1, InputError, "PL0608", "moe.ffn = {}: expected at least 1",
                moe.ffn);
  PLEAT_REQUIRE(moe.shared_ffn >= 0, InputError, "PL0608",
                "moe.shared_ffn = {}: expected 0 (no shared expert) or more",
                moe.shared_ffn);
  PLEAT_REQUIRE(!moe.shared_gate || moe.shared_ffn > 0, InputError, "PL0609",
                "moe.shared_gate = true, but there is no shared expert\n"
                "HINT: set moe.shared_ffn, or leave the gate out.");
  for (const double coefficient : {moe.auxiliary_coefficient, moe.z_coefficient}) {
    PLEAT_REQUIRE(std::isfinite(coefficient) && coefficient >= 0.0, InputError, "PL0605",
                  "a loss coefficient of [moe] is {}: expected a number of at least 0",
                  coefficient);
  }
}

}  // namespace

bool ModelConfig::has_dense_layers() const {
  return std::find(moe_layer.begin(), moe_layer.end(), false) != moe_layer.end();
}

bool ModelConfig::has_moe_layers() const {
  return std::find(moe_layer.begin(), moe_layer.end(), true) != moe_layer.end();
}

void validate(const ModelConfig& config) {
  require_positive("layers", config.layers);
  require_positive("hidden", config.hidden);
  require_positive("vocab", config.vocab);
  validate_attention(config);
  validate_numbers(config);
  validate_pattern(config);
  if (config.has_moe_layers()) validate_moe(config.moe);
}

}  // namespace pleat::plan
