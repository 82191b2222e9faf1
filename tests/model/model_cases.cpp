// SPDX-License-Identifier: Apache-2.0
#include "model/model_cases.hpp"

namespace pleat::test {
namespace {

using plan::AuxiliaryScope;
using plan::Family;
using plan::RouterScore;

/// Every third token carries no loss.
void thin_out_loss(HostBatch& batch) {
  for (std::size_t t = 0; t < batch.loss_mask_T.size(); t += 3) batch.loss_mask_T[t] = 0;
}

/// Padding of several lengths; the last of at least three sequences is all padding.
void pad_ends(HostBatch& batch) {
  batch.pad(0, 1);
  batch.pad(1, batch.sequence / 2);
  batch.pad(batch.sequences - 1, batch.sequence);
}

void add_attention_cases(std::vector<ModelCase>& cases) {
  plan::ModelConfig config = small_model();
  config.qkv_bias = true;
  config.qk_norm = true;
  config.heads = 3;
  config.kv_heads = 1;
  config.head_dim = 10;
  cases.push_back({"bias_and_qk_norm", config, random_batch(2, 9, config.vocab, 1)});
  config.kv_heads = 3;
  config.qkv_bias = false;
  config.rope_theta = 50.0;
  cases.push_back({"heads_not_grouped", config, random_batch(2, 9, config.vocab, 2)});
  config = small_model();
  config.layers = 1;
  config.moe_layer = {true};
  cases.push_back({"long_sequence", config, random_batch(1, 150, config.vocab, 3)});
  config = small_model();
  config.vocab = 251;
  cases.push_back({"one_token_sequences", config, random_batch(7, 1, config.vocab, 4)});
  cases.push_back({"one_token", config, random_batch(1, 1, config.vocab, 5)});
  config.hidden = 15;
  config.heads = 5;
  config.kv_heads = 1;
  config.head_dim = 2;
  config.moe.ffn = 5;
  config.moe.experts = 7;
  config.moe.top_k = 3;
  cases.push_back({"odd_sizes", config, random_batch(3, 13, config.vocab, 6)});
}

void add_layer_cases(std::vector<ModelCase>& cases) {
  plan::ModelConfig config = small_model();
  config.family = Family::kQwen2Moe;
  config.layers = 4;
  config.ffn = 9;
  config.qkv_bias = true;
  config.moe_layer = {false, true, false, true};
  config.moe.shared_ffn = 5;
  config.moe.shared_gate = true;
  cases.push_back({"dense_and_moe_layers", config, random_batch(2, 6, config.vocab, 11)});
  config.layers = 2;
  config.moe_layer = {false, false};
  cases.push_back({"dense_layers_alone", config, random_batch(2, 6, config.vocab, 12)});
  config = small_model();
  config.moe.shared_ffn = 11;
  cases.push_back({"shared_expert", config, random_batch(2, 6, config.vocab, 13)});
  config.moe.shared_gate = true;
  config.family = Family::kMixtral;
  cases.push_back({"gated_shared_expert", config, random_batch(2, 6, config.vocab, 14)});
  config = small_model();
  config.tied = true;
  cases.push_back({"tied", config, random_batch(2, 6, config.vocab, 15)});
}

void add_router_cases(std::vector<ModelCase>& cases) {
  plan::ModelConfig config = small_model();
  config.moe.score = RouterScore::kSoftmaxAfterTopK;
  cases.push_back({"softmax_after_top_k", config, random_batch(2, 8, config.vocab, 21)});
  config = small_model();
  config.moe.normalize = false;
  config.moe.top_k = 3;
  cases.push_back({"not_normalised", config, random_batch(2, 8, config.vocab, 22)});
  config.moe.top_k = 1;
  cases.push_back({"top_1", config, random_batch(2, 8, config.vocab, 23)});
  config.moe.top_k = config.moe.experts;
  cases.push_back({"every_expert", config, random_batch(2, 8, config.vocab, 24)});
  config.moe.normalize = true;
  cases.push_back(
      {"every_expert_normalised", config, random_batch(2, 8, config.vocab, 25)});
  config.moe.experts = config.moe.top_k = 1;
  cases.push_back({"one_expert", config, random_batch(2, 8, config.vocab, 26)});
  config = small_model();
  config.moe.experts = 40;
  cases.push_back(
      {"experts_without_tokens", config, random_batch(1, 8, config.vocab, 27)});
}

void add_mask_cases(std::vector<ModelCase>& cases) {
  plan::ModelConfig config = small_model();
  HostBatch batch = random_batch(4, 8, config.vocab, 31);
  thin_out_loss(batch);
  cases.push_back({"loss_mask", config, batch});
  pad_ends(batch);
  cases.push_back({"padding", config, batch});
  config.moe.shared_ffn = 6;
  config.moe.shared_gate = true;
  config.moe.auxiliary_scope = AuxiliaryScope::kSequence;
  cases.push_back({"padding_by_sequence", config, batch});
  cases.push_back({"losses_by_sequence", config, random_batch(4, 8, config.vocab, 32)});
  batch.loss_mask_T.assign(batch.loss_mask_T.size(), 0);
  cases.push_back({"no_loss", config, batch});
  batch = random_batch(2, 4, config.vocab, 33);
  batch.pad(0, 4);
  batch.pad(1, 4);
  cases.push_back({"all_padding", config, batch});
}

}  // namespace

plan::ModelConfig small_model() {
  plan::ModelConfig config;
  config.family = Family::kQwen3Moe;
  config.layers = 2;
  config.hidden = 12;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 6;
  config.vocab = 23;
  config.rope_theta = 1.0e4;
  config.norm_eps = 1.0e-5;
  config.moe_layer = {true, true};
  config.moe.experts = 5;
  config.moe.top_k = 2;
  config.moe.ffn = 7;
  config.moe.auxiliary_coefficient = 0.3;
  config.moe.z_coefficient = 0.05;
  return config;
}

const std::vector<ModelCase>& model_cases() {
  static const std::vector<ModelCase> cases = [] {
    std::vector<ModelCase> all;
    add_attention_cases(all);
    add_layer_cases(all);
    add_router_cases(all);
    add_mask_cases(all);
    return all;
  }();
  return cases;
}

}  // namespace pleat::test
