// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Section [moe].
#include "deck_keys_sections.hpp"

namespace pleat::train {
namespace {

using io::Restart;

void declare_experts(io::DeckKeys& keys, plan::MoeConfig& moe) {
  keys.add(moe.experts, {.name = "moe.experts",
                         .meaning = "experts of a layer; 0: every layer is dense",
                         .range = from_to(0, 4096)});
  keys.add(moe.top_k, {.name = "moe.top_k",
                       .meaning = "experts that a token is sent to",
                       .range = from_to(1, 4096)});
  keys.add(moe.ffn, {.name = "moe.ffn",
                     .meaning = "inner width of one expert",
                     .fallback = "from init or preset, else required with experts",
                     .range = from_to(0, 1048576)});
  keys.add(moe.shared_ffn, {.name = "moe.shared_ffn",
                            .meaning = "inner width of the shared expert; 0: none",
                            .range = from_to(0, 1048576)});
  keys.add(moe.shared_gate, {.name = "moe.shared_gate",
                             .meaning = "sigmoid gate on the shared expert's output"});
}

void declare_router(io::DeckKeys& keys, plan::MoeConfig& moe) {
  using plan::RouterScore;
  keys.add_choice(moe.score,
                  {{"softmax_before_top_k", RouterScore::kSoftmaxBeforeTopK},
                   {"softmax_after_top_k", RouterScore::kSoftmaxAfterTopK},
                   {"sigmoid", RouterScore::kSigmoid}},
                  {.name = "moe.score",
                   .meaning = "softmax over all experts, or over the chosen ones; or the "
                              "sigmoid of each logit by itself"});
  keys.add(moe.normalize,
           {.name = "moe.normalize",
            .meaning = "routing weights of a token are divided by their sum"});
  keys.add(moe.groups,
           {.name = "moe.groups",
            .meaning = "equal runs of experts, of which a token chooses within the best; "
                       "divides experts",
            .range = from_to(1, 4096)});
  keys.add(moe.top_groups,
           {.name = "moe.top_groups",
            .meaning = "groups that a token chooses within, by the sum of the two best "
                       "scores of each",
            .range = from_to(1, 4096)});
  keys.add(moe.routed_scale, {.name = "moe.routed_scale",
                              .meaning = "factor of all routing weights, applied last",
                              .range = above(0)});
}

void declare_balance(io::DeckKeys& keys, plan::MoeConfig& moe) {
  keys.add(
      moe.auxiliary_coefficient,
      {.name = "moe.aux_loss.coeff",
       .meaning = "factor of the load-balancing loss of each MoE layer; with a Hugging "
                  "Face `init` that has output_router_logits the default is its "
                  "router_aux_loss_coef",
       .range = at_least(0),
       .restart = Restart::kWarns});
  using plan::AuxiliaryScope;
  keys.add_choice(
      moe.auxiliary_scope,
      {{"micro_batch", AuxiliaryScope::kMicroBatch},
       {"sequence", AuxiliaryScope::kSequence},
       {"global_batch", AuxiliaryScope::kGlobalBatch}},
      {.name = "moe.aux_loss.scope",
       .meaning = "over which tokens the load-balancing loss takes its means; "
                  "global_batch: all data ranks and the micro-batches of the "
                  "step so far",
       .restart = Restart::kWarns});
  keys.add(moe.z_coefficient, {.name = "moe.z_loss",
                               .meaning = "factor of the router z-loss of each MoE layer",
                               .range = at_least(0),
                               .restart = Restart::kWarns});
  keys.add(moe.bias_update_rate,
           {.name = "moe.bias_update_rate",
            .meaning = "balancing without a loss: how far a bias of each expert, which "
                       "enters the choice only, moves per step; 0: no bias",
            .range = at_least(0),
            .restart = Restart::kWarns,
            // Without a rate the model has no such biases.
            .zero_is_another_model = true});
}

void declare_dropping(io::DeckKeys& keys, plan::DropConfig& drop) {
  keys.add(
      drop.capacity_factor,
      {.name = "moe.drop.capacity_factor",
       .meaning = "an expert takes this many times its even share of tokens, the rest "
                  "is dropped; 0: nothing is dropped",
       .range = at_least(0),
       .restart = Restart::kWarns});
  using plan::DropPolicy;
  using plan::DropScope;
  keys.add_choice(
      drop.scope,
      {{"subsequence", DropScope::kSubSequence}, {"sequence", DropScope::kSequence}},
      {.name = "moe.drop.scope",
       .meaning = "tokens whose share is counted: those of a sequence on one "
                  "rank (depends on the mapping), or the whole sequence",
       .restart = Restart::kWarns});
  keys.add_choice(drop.policy,
                  {{"probs", DropPolicy::kProbs}, {"position", DropPolicy::kPosition}},
                  {.name = "moe.drop.policy",
                   .meaning = "which tokens stay: of the largest routing weights, or the "
                              "earliest",
                   .restart = Restart::kWarns});
  keys.add(drop.pad, {.name = "moe.drop.pad",
                      .meaning = "experts are filled up to their capacity, so that all "
                                 "sizes are known beforehand",
                      .restart = Restart::kWarns});
}

}  // namespace

void declare_moe_keys(io::DeckKeys& keys, DeckFields& fields) {
  plan::MoeConfig& moe = fields.config.model.moe;
  keys.add_section("moe", "Experts and router of the MoE layers.");
  declare_experts(keys, moe);
  declare_router(keys, moe);
  declare_balance(keys, moe);
  declare_dropping(keys, moe.drop);
  keys.add(fields.dense_layers,
           {.name = "moe.dense_layers",
            .meaning = "numbers of the layers, from 0, that are dense SwiGLU (model.ffn) "
                       "instead of MoE",
            .range = from_to(0, 1023)});
}

}  // namespace pleat::train
