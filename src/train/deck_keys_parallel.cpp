// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Section [parallel]. Results do not depend on it, so all of it may change at a
/// restart.
#include "deck_keys_sections.hpp"

namespace pleat::train {
namespace {

using io::Restart;

void declare_degrees(io::DeckKeys& keys, ParallelSection& parallel) {
  const auto add = [&](std::int64_t& field, const char* name, const char* meaning) {
    keys.add(field, {.name = name,
                     .meaning = meaning,
                     .unit = "ranks",
                     .range = from_to(1, 65536),
                     .restart = Restart::kFree});
  };
  add(parallel.pipeline, "parallel.pipeline", "pipeline stages; of both grids");
  add(parallel.context, "parallel.context", "parts of a sequence in attention");
  add(parallel.tensor, "parallel.tensor", "parts of heads, dense layers and vocabulary");
  add(parallel.expert, "parallel.expert", "parts of the set of experts");
  add(parallel.expert_tensor, "parallel.expert_tensor",
      "parts of one expert; need not equal tensor");
}

void declare_exchanges(io::DeckKeys& keys, ParallelSection& parallel) {
  using comm::BackendKind;
  using plan::ContextExchange;
  using plan::DispatcherKind;
  using plan::Sharding;
  keys.add_choice(
      parallel.backend,
      {{"auto", BackendKind::kAuto},
       {"nccl", BackendKind::kNccl},
       {"mpi", BackendKind::kMpi}},
      {.name = "parallel.backend",
       .meaning =
           "what moves data between GPUs: NCCL (RCCL on AMD), or MPI by way of host "
           "memory; auto: NCCL where it is compiled in and each rank has a GPU to "
           "itself. Without GPUs it is MPI",
       .restart = Restart::kFree});
  keys.add(parallel.overlap,
           {.name = "parallel.overlap",
            .meaning = "exchanges run while the next work is done; false: each is waited "
                       "for where it begins, to measure what the overlap brings",
            .restart = Restart::kFree});
  keys.add_choice(
      parallel.dispatcher,
      {{"alltoall", DispatcherKind::kAllToAll},
       {"allgather", DispatcherKind::kAllGather}},
      {.name = "parallel.dispatcher",
       .meaning = "how tokens reach their experts; allgather sends more, and is "
                  "for networks that are bad at all-to-all",
       .restart = Restart::kFree});
  keys.add_choice(
      parallel.context_exchange,
      {{"ring", ContextExchange::kRing}, {"allgather", ContextExchange::kAllGather}},
      {.name = "parallel.context_exchange",
       .meaning = "how keys and values reach the other context ranks: piece by piece "
                  "during the attention, or all at once before it",
       .restart = Restart::kFree});
  keys.add_choice(
      parallel.sharding,
      {{"optimizer", Sharding::kOptimizer}, {"parameters", Sharding::kParameters}},
      {.name = "parallel.sharding",
       .meaning =
           "what the ranks that sum a gradient share out: the moments (ZeRO-1), or "
           "weights and gradients of the layers too (ZeRO-3, FSDP)",
       .restart = Restart::kFree});
}

void declare_pipeline(io::DeckKeys& keys, ParallelSection& parallel) {
  using plan::PipelineSchedule;
  keys.add_choice(
      parallel.schedule,
      {{"1f1b", PipelineSchedule::kOneForwardOneBackward},
       {"interleaved", PipelineSchedule::kInterleaved}},
      {.name = "parallel.schedule",
       .meaning = "order of a stage's work: one forward, one backward; interleaved: with "
                  "several chunks of the model per stage, less idle time, more messages",
       .restart = Restart::kFree});
  keys.add(parallel.chunks, {.name = "parallel.chunks",
                             .meaning = "chunks of the model on each stage; chunk c of "
                                        "stage s is virtual stage c * pipeline + s",
                             .fallback = "2 when interleaved, else 1",
                             .range = from_to(1, 1024),
                             .restart = Restart::kFree});
  keys.add(parallel.layout,
           {.name = "parallel.layout",
            .meaning = "layers of each of the pipeline * chunks virtual stages, in model "
                       "order; empty: balanced, the head counted by its work",
            .range = from_to(0, 1024),
            .restart = Restart::kFree});
}

}  // namespace

void declare_parallel_keys(io::DeckKeys& keys, ParallelSection& parallel) {
  keys.add_section(
      "parallel",
      "The mapping onto ranks (docs/grids.md). No degree follows another; "
      "the degrees of data and expert data follow from the number of ranks.");
  declare_degrees(keys, parallel);
  declare_exchanges(keys, parallel);
  declare_pipeline(keys, parallel);
}

}  // namespace pleat::train
