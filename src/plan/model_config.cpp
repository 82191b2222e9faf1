// SPDX-License-Identifier: Apache-2.0
#include "pleat/plan/model_config.hpp"

#include <algorithm>
#include <cmath>

#include "pleat/base/error.hpp"

namespace pleat::plan {
namespace {

constexpr std::int64_t kLargestFfn = 1048576;

/// The bounds keep every product of sizes within 64 bits; published models are far below.
void require_size(const char* key, std::int64_t value, std::int64_t largest) {
  PLEAT_REQUIRE(value >= 1 && value <= largest, InputError, "PL0602",
                "{} = {}: expected 1 to {}\n"
                "HINT: give every size of the model, or start from model.preset.",
                key, value, largest);
}

void validate_attention(const ModelConfig& config) {
  require_size("model.heads", config.heads, 4096);
  require_size("model.kv_heads", config.kv_heads, 4096);
  require_size("model.head_dim", config.head_dim, 1024);
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
  PLEAT_REQUIRE(
      !config.has_dense_layers() || (config.ffn >= 1 && config.ffn <= kLargestFfn),
      InputError, "PL0607",
      "model.ffn = {}, but the model has dense layers: expected 1 to {}\n"
      "HINT: set model.ffn, or make every layer a MoE layer.",
      config.ffn, kLargestFfn);
}

void validate_groups(const MoeConfig& moe) {
  PLEAT_REQUIRE(moe.groups >= 1 && moe.experts % moe.groups == 0, InputError, "PL0620",
                "moe.groups = {} does not divide moe.experts = {}\n"
                "HINT: the groups are equal runs of experts; 1 switches them off.",
                moe.groups, moe.experts);
  const std::int64_t size = moe.experts / moe.groups;
  PLEAT_REQUIRE(moe.groups == 1 || size >= 2, InputError, "PL0620",
                "moe.groups = {} leaves one expert in each group\n"
                "HINT: a group is judged by its two best experts; choose fewer groups.",
                moe.groups);
  PLEAT_REQUIRE(moe.top_groups >= 1 && moe.top_groups <= moe.groups, InputError, "PL0620",
                "moe.top_groups = {}: expected 1 to moe.groups = {}", moe.top_groups,
                moe.groups);
  PLEAT_REQUIRE(moe.top_k <= moe.top_groups * size, InputError, "PL0620",
                "moe.top_k = {}, but moe.top_groups = {} groups have {} experts\n"
                "HINT: raise moe.top_groups, or lower moe.top_k or moe.groups.",
                moe.top_k, moe.top_groups, moe.top_groups * size);
}

void validate_router_numbers(const MoeConfig& moe) {
  for (const double coefficient : {moe.auxiliary_coefficient, moe.z_coefficient}) {
    PLEAT_REQUIRE(std::isfinite(coefficient) && coefficient >= 0.0, InputError, "PL0605",
                  "a loss coefficient of [moe] is {}: expected a number of at least 0",
                  coefficient);
  }
  PLEAT_REQUIRE(std::isfinite(moe.bias_update_rate) && moe.bias_update_rate >= 0.0,
                InputError, "PL0605",
                "moe.bias_update_rate = {}: expected a number of at least 0",
                moe.bias_update_rate);
  PLEAT_REQUIRE(std::isfinite(moe.routed_scale) && moe.routed_scale > 0.0, InputError,
                "PL0605", "moe.routed_scale = {}: expected a positive number",
                moe.routed_scale);
}

void validate_dropping(const DropConfig& drop) {
  PLEAT_REQUIRE(std::isfinite(drop.capacity_factor) && drop.capacity_factor >= 0.0,
                InputError, "PL0621",
                "moe.drop.capacity_factor = {}: expected a number of at least 0",
                drop.capacity_factor);
  PLEAT_REQUIRE(!drop.pad || drop.active(), InputError, "PL0621",
                "moe.drop.pad = true, but experts have no capacity to be filled up to\n"
                "HINT: set moe.drop.capacity_factor, or leave moe.drop.pad out.");
}

void validate_moe(const MoeConfig& moe) {
  require_size("moe.experts", moe.experts, 4096);
  require_size("moe.ffn", moe.ffn, kLargestFfn);
  PLEAT_REQUIRE(moe.top_k >= 1 && moe.top_k <= moe.experts, InputError, "PL0608",
                "moe.top_k = {}: expected 1 to moe.experts = {}\n"
                "HINT: a token cannot choose more experts than there are.",
                moe.top_k, moe.experts);
  if (moe.shared_ffn != 0) require_size("moe.shared_ffn", moe.shared_ffn, kLargestFfn);
  PLEAT_REQUIRE(!moe.shared_gate || moe.shared_ffn > 0, InputError, "PL0609",
                "moe.shared_gate = true, but there is no shared expert\n"
                "HINT: set moe.shared_ffn, or leave the gate out.");
  validate_groups(moe);
  validate_router_numbers(moe);
  validate_dropping(moe.drop);
}

}  // namespace

bool ModelConfig::has_dense_layers() const {
  return std::find(moe_layer.begin(), moe_layer.end(), false) != moe_layer.end();
}

bool ModelConfig::has_moe_layers() const {
  return std::find(moe_layer.begin(), moe_layer.end(), true) != moe_layer.end();
}

void validate(const ModelConfig& config) {
  require_size("model.layers", config.layers, 1024);
  require_size("model.hidden", config.hidden, 131072);
  require_size("model.vocab", config.vocab, 16777216);
  validate_attention(config);
  validate_numbers(config);
  validate_pattern(config);
  if (config.has_moe_layers()) validate_moe(config.moe);
}

}  // namespace pleat::plan
