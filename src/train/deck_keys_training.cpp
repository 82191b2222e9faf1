// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Sections [run], [batch], [optimizer] and [precision].
#include "deck_keys_sections.hpp"

namespace pleat::train {

using io::Restart;

void declare_run_keys(io::DeckKeys& keys, RunConfig& config) {
  RunSection& run = config.run;
  keys.add_section("run", "The run as a whole.");
  keys.add(run.name, {.name = "run.name",
                      .meaning = "name of the run: letters, digits, '.', '_' and '-'",
                      .restart = Restart::kFree});
  keys.add(run.seed, {.name = "run.seed",
                      .meaning = "seed of initial weights and data order",
                      .range = at_least(0)});
  keys.add(run.steps, {.name = "run.steps",
                       .meaning = "optimizer steps of the whole run",
                       .unit = "steps",
                       .required = true,
                       .range = from_to(1, 1.0e9),
                       .restart = Restart::kWarns});
  keys.add(run.output, {.name = "run.output",
                        .meaning = "folder that the run writes; relative to the working "
                                   "directory",
                        .fallback = "runs/NAME",
                        .restart = Restart::kFree});
  keys.add(run.wall_limit,
           {.name = "run.wall_limit",
            .meaning = "time after whose end the job would be killed, such as \"3h50m\" or "
                       "\"03:50:00\"; \"auto\": what the batch system says; empty: none",
            .restart = Restart::kFree});
  keys.add(run.watchdog, {.name = "run.watchdog",
                          .meaning = "time without a finished step after which every rank "
                                     "says where it is and the job ends; 0: never",
                          .unit = "seconds",
                          .range = from_to(0, 1.0e6),
                          .restart = Restart::kFree});
}

void declare_batch_keys(io::DeckKeys& keys, BatchSection& batch) {
  keys.add_section("batch", "Samples of a step.");
  keys.add(batch.sequence, {.name = "batch.sequence",
                            .meaning = "length of a sequence",
                            .unit = "tokens",
                            .required = true,
                            .range = from_to(1, 16777216)});
  keys.add(batch.micro,
           {.name = "batch.micro",
            .meaning = "sequences that are computed at once; the scope of the "
                       "auxiliary loss",
            .unit = "sequences",
            .range = from_to(1, 65536),
            .restart = Restart::kWarns});
  keys.add(batch.global, {.name = "batch.global",
                          .meaning = "sequences of one step; a multiple of micro",
                          .unit = "sequences",
                          .fallback = "micro",
                          .range = from_to(1, 16777216),
                          .restart = Restart::kWarns});
}

void declare_optimizer_keys(io::DeckKeys& keys, OptimizerSection& optimizer) {
  keys.add_section("optimizer",
                   "AdamW and its learning rate. Weight decay acts on matrices "
                   "only, not on norms and biases.");
  const auto add = [&](auto& field, const char* name, const char* meaning,
                       io::DeckRange range, const char* unit = "") {
    keys.add(field, {.name = name,
                     .meaning = meaning,
                     .unit = unit,
                     .range = range,
                     .restart = Restart::kWarns});
  };
  add(optimizer.lr, "optimizer.lr", "highest learning rate, reached after warmup",
      at_least(0));
  add(optimizer.min_lr, "optimizer.min_lr", "learning rate of the last step",
      at_least(0));
  add(optimizer.warmup, "optimizer.warmup",
      "steps over which the rate rises from 0 to lr", from_to(0, 1.0e9), "steps");
  keys.add_choice(
      optimizer.schedule,
      {{"cosine", Schedule::kCosine},
       {"linear", Schedule::kLinear},
       {"constant", Schedule::kConstant}},
      {.name = "optimizer.schedule",
       .meaning = "how the rate falls from lr to min_lr after warmup; constant: "
                  "it stays at lr",
       .restart = Restart::kWarns});
  add(optimizer.beta1, "optimizer.beta1", "decay of the first moment", fraction());
  add(optimizer.beta2, "optimizer.beta2", "decay of the second moment", fraction());
  add(optimizer.eps, "optimizer.eps", "added to the root of the second moment", above(0));
  add(optimizer.weight_decay, "optimizer.weight_decay", "decoupled weight decay",
      at_least(0));
  add(optimizer.clip, "optimizer.clip",
      "largest global norm of the gradient; 0: no clipping", at_least(0));
}

void declare_precision_keys(io::DeckKeys& keys, PrecisionSection& precision) {
  keys.add_section("precision", "Number formats, and memory against time.");
  keys.add_choice(precision.compute,
                  {{"fp64", Precision::kFp64},
                   {"fp32", Precision::kFp32},
                   {"bf16", Precision::kBf16}},
                  {.name = "precision.compute",
                   .meaning = "format of weights, activations and optimizer state; with "
                              "bf16 the optimizer's weights, the gradients of weights and "
                              "all sums are fp32",
                   .restart = Restart::kWarns});
  keys.add_choice(
      precision.recompute,
      {{"none", Recompute::kNone},
       {"selective", Recompute::kSelective},
       {"full", Recompute::kFull}},
      {.name = "precision.recompute",
       .meaning = "what the backward pass computes again instead of keeping: "
                  "nothing; attention core and expert activations; all but the "
                  "inputs of blocks",
       .restart = Restart::kFree});
}

}  // namespace pleat::train
