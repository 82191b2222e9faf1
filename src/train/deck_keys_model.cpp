// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Section [model]. The upper bounds keep every product of sizes within
/// 64 bits; they are far beyond published models.
#include "deck_keys_sections.hpp"

namespace pleat::train {
namespace {

using io::Restart;

constexpr const char* kFromShape = "from init or preset, else required";

void declare_sizes(io::DeckKeys& keys, plan::ModelConfig& model) {
  keys.add(model.layers, {.name = "model.layers",
                          .meaning = "transformer blocks",
                          .fallback = kFromShape,
                          .range = from_to(1, 1024)});
  keys.add(model.hidden, {.name = "model.hidden",
                          .meaning = "width of the residual stream",
                          .fallback = kFromShape,
                          .range = from_to(1, 131072)});
  keys.add(model.heads, {.name = "model.heads",
                         .meaning = "query heads",
                         .fallback = kFromShape,
                         .range = from_to(1, 4096)});
  keys.add(model.kv_heads, {.name = "model.kv_heads",
                            .meaning = "key and value heads; divides heads",
                            .fallback = "from init or preset, else heads",
                            .range = from_to(1, 4096)});
  keys.add(model.head_dim, {.name = "model.head_dim",
                            .meaning = "elements of a head; even",
                            .fallback = "from init or preset, else hidden / heads",
                            .range = from_to(2, 1024)});
  keys.add(model.ffn, {.name = "model.ffn",
                       .meaning = "inner width of dense layers; 0 when there are none",
                       .fallback = "from init or preset, else 0",
                       .range = from_to(0, 1048576)});
  keys.add(model.vocab, {.name = "model.vocab",
                         .meaning = "tokens of the vocabulary",
                         .fallback = kFromShape,
                         .range = from_to(1, 16777216)});
}

void declare_details(io::DeckKeys& keys, plan::ModelConfig& model) {
  keys.add(model.rope_theta, {.name = "model.rope_theta",
                              .meaning = "base of the rotary embedding's frequencies",
                              .range = above(0)});
  keys.add(model.norm_eps, {.name = "model.norm_eps",
                            .meaning = "added to the mean square in every RMSNorm",
                            .range = above(0)});
  keys.add(model.qkv_bias, {.name = "model.qkv_bias",
                            .meaning = "query, key and value projections have biases"});
  keys.add(model.qk_norm, {.name = "model.qk_norm",
                           .meaning = "RMSNorm on each query and key head before RoPE"});
  keys.add(model.tied, {.name = "model.tied",
                        .meaning = "the head shares the weights of the embedding"});
  // The names of the tensors in a checkpoint, hence refused on a restart.
  using plan::Family;
  keys.add_choice(
      model.family,
      {{"mixtral", Family::kMixtral},
       {"qwen2_moe", Family::kQwen2Moe},
       {"qwen3_moe", Family::kQwen3Moe}},
      {.name = "model.family",
       .meaning = "whose tensor names and config.json `pleat convert` writes; "
                  "does not change the mathematics"});
  keys.add(model.init_std, {.name = "model.init_std",
                            .meaning = "standard deviation of random initial weights",
                            .range = from_to(0, 10),
                            .restart = Restart::kWarns});
}

}  // namespace

void declare_model_keys(io::DeckKeys& keys, DeckFields& fields) {
  keys.add_section("model",
                   "The transformer: `init`, or `preset`, or its sizes. Sizes "
                   "given beside `init` must agree with it; beside `preset` they "
                   "replace single ones.");
  // init and init_std lose their effect once a run has begun; who changes them expects one.
  keys.add(fields.config.model_init,
           {.name = "model.init",
            .meaning = "Hugging Face folder, checkpoint, or folder of a run (its newest "
                       "checkpoint) that gives shape and weights; empty: random weights",
            .restart = Restart::kWarns,
            .path = true});
  keys.add_text_choice(fields.preset, plan::preset_names(),
                       {.name = "model.preset",
                        .meaning = "a published model whose shape is taken",
                        .restart = Restart::kFree});
  declare_sizes(keys, fields.config.model);
  declare_details(keys, fields.config.model);
}

}  // namespace pleat::train
