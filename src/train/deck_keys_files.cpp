// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Sections [data], [validation], [checkpoint], [guard] and [output].
#include "deck_keys_sections.hpp"

namespace pleat::train {

using io::Restart;

void declare_data_keys(io::DeckKeys& keys, io::DataConfig& data) {
  keys.add_section("data", "Where the tokens come from.");
  using io::DataFormat;
  keys.add_choice(
      data.format,
      {{"text", DataFormat::kText},
       {"megatron", DataFormat::kMegatron},
       {"hdf5", DataFormat::kHdf5},
       {"synthetic", DataFormat::kSynthetic}},
      {.name = "data.format",
       .meaning = "text files; Megatron .bin/.idx pairs; integer arrays in HDF5; "
                  "random tokens without any file"});
  keys.add(data.paths,
           {.name = "data.path",
            .meaning = "one source, or a list that is blended; Megatron: without "
                       "the extension",
            .fallback = "required unless synthetic",
            .restart = Restart::kWarns,
            .path = true});
  // Weights and the places in a file go with the path: other data, the same way to count
  // their samples.
  keys.add(data.weights,
           {.name = "data.weights",
            .meaning = "share of each source in the blend; empty: as many as "
                       "its tokens",
            .range = above(0),
            .restart = Restart::kWarns});
  keys.add(data.dataset,
           {.name = "data.dataset",
            .meaning = "hdf5: path of the tokens in the file, integers whose "
                       "last dimension is sequence + 1",
            .restart = Restart::kWarns});
  keys.add(data.loss_mask, {.name = "data.loss_mask",
                            .meaning = "hdf5: path of the loss mask, last dimension "
                                       "sequence; empty: every token carries loss",
                            .restart = Restart::kWarns});
  keys.add(data.lengths, {.name = "data.lengths",
                          .meaning = "hdf5: path of the samples' real lengths; what lies "
                                     "beyond is padding; empty: none",
                          .restart = Restart::kWarns});
  keys.add(data.tokenizer, {.name = "data.tokenizer",
                            .meaning = "text: \"bytes\", or the path of a SentencePiece "
                                       "model",
                            .path = true});
  keys.add(data.shuffle, {.name = "data.shuffle",
                          .meaning = "a new order each epoch; false: as in the file"});
  keys.add(data.split, {.name = "data.split",
                        .meaning = "share of the samples that is held out for validation",
                        .range = fraction()});
  keys.add(data.synthetic_samples, {.name = "data.synthetic_samples",
                                    .meaning = "synthetic: samples of an epoch",
                                    .unit = "samples",
                                    .range = from_to(1, 1.0e12)});
}

namespace {

void declare_checkpoint_hints(io::DeckKeys& keys, io::CheckpointHints& hints) {
  using Buffering = io::CollectiveBuffering;
  keys.add_choice(hints.collective_buffering,
                  {{"auto", Buffering::kAutomatic}, {"on", Buffering::kOn}, {"off", Buffering::kOff}},
                  {.name = "checkpoint.collective_buffering",
                   .meaning = "whether some ranks gather the parts of the others and write "
                              "them in large pieces; \"auto\": MPI decides",
                   .restart = Restart::kFree});
  const auto add = [&](std::int64_t& field, const char* name, const char* meaning,
                       const char* unit, double largest = 1.0e12) {
    keys.add(field, {.name = name,
                     .meaning = meaning,
                     .unit = unit,
                     .range = from_to(0, largest),
                     .restart = Restart::kFree});
  };
  constexpr double kLargestAlignment = 1 << 30;  // a file may have one gap for each tensor
  constexpr double kLargestBuffer = 1 << 30;     // MPI-IO takes an int
  add(hints.aggregators, "checkpoint.aggregators",
      "ranks that write for the others; 0: MPI decides", "ranks");
  add(hints.buffer_bytes, "checkpoint.buffer", "buffer of each of them; 0: MPI decides",
      "bytes", kLargestBuffer);
  add(hints.alignment, "checkpoint.alignment",
      "tensors of that size or more begin on a multiple of it: the stripe or block of the "
      "file system; 0: anywhere",
      "bytes", kLargestAlignment);
  add(hints.stripes, "checkpoint.stripes",
      "storage targets over which a parallel file system spreads a checkpoint; 0: as the "
      "folder says",
      "targets");
}

void declare_guard_keys(io::DeckKeys& keys, GuardSection& guard) {
  keys.add_section("guard", "What becomes of a step that went wrong.");
  keys.add_choice(guard.non_finite,
                  {{"stop", GuardAction::kStop},
                   {"skip", GuardAction::kSkip},
                   {"rollback", GuardAction::kRollback}},
                  {.name = "guard.non_finite",
                   .meaning = "NaN or Inf in loss or gradient: end with exit code 3; leave the "
                              "batch out; or go back to the last checkpoint and on with the "
                              "data behind that batch",
                   .restart = Restart::kWarns});
  keys.add_choice(guard.spike,
                  {{"ignore", GuardAction::kIgnore},
                   {"stop", GuardAction::kStop},
                   {"skip", GuardAction::kSkip},
                   {"rollback", GuardAction::kRollback}},
                  {.name = "guard.spike",
                   .meaning = "the same for a loss far above those before it",
                   .restart = Restart::kWarns});
  keys.add(guard.spike_factor,
           {.name = "guard.spike_factor",
            .meaning = "a loss above that many times the median of recent ones is a spike",
            .range = above(1.0),
            .restart = Restart::kWarns});
  keys.add(guard.spike_window,
           {.name = "guard.spike_window",
            .meaning = "accepted steps that are recent; before there are as many, nothing is a spike",
            .unit = "steps",
            .range = from_to(1, 1.0e4),
            .restart = Restart::kWarns});
  keys.add(guard.most, {.name = "guard.most",
                        .meaning = "batches left out and rollbacks of a run, together, before it ends with "
                                   "exit code 3 after all",
                        .range = from_to(0, 1.0e9),
                        .restart = Restart::kFree});
}

}  // namespace

void declare_output_keys(io::DeckKeys& keys, RunConfig& config) {
  const auto add = [&](std::int64_t& field, const char* name, const char* meaning,
                       io::DeckRange range, const char* unit) {
    keys.add(field, {.name = name,
                     .meaning = meaning,
                     .unit = unit,
                     .range = range,
                     .restart = Restart::kFree});
  };
  keys.add_section("validation", "Loss on held-out samples (data.split).");
  add(config.validation.every, "validation.every",
      "from one validation to the next; 0: none", from_to(0, 1.0e9), "steps");
  add(config.validation.samples, "validation.samples",
      "held-out samples that are used; 0: all", from_to(0, 1.0e12), "samples");

  keys.add_section("checkpoint", "When the state is saved and how a run continues.");
  add(config.checkpoint.every, "checkpoint.every",
      "from one checkpoint to the next; 0: only after the last step", from_to(0, 1.0e9),
      "steps");
  add(config.checkpoint.keep, "checkpoint.keep",
      "newest regular checkpoints that stay, with those of stops in between; 0: all",
      from_to(0, 1.0e9), "files");
  add(config.checkpoint.keep_every, "checkpoint.keep_every",
      "checkpoints of every so many steps stay for ever; 0: none", from_to(0, 1.0e9),
      "steps");
  keys.add(config.checkpoint.asynchronous,
           {.name = "checkpoint.asynchronous",
            .meaning = "the next steps go on while a checkpoint is being written",
            .restart = Restart::kFree});
  add(config.checkpoint.beside, "checkpoint.beside",
      "asynchronous: steps that may be taken beside the writing; the last of them waits for it. "
      "A kill takes back at most checkpoint.every + beside - 1 steps",
      from_to(1, 1.0e9), "steps");
  declare_checkpoint_hints(keys, config.checkpoint.hints);
  keys.add(
      config.checkpoint.resume,
      {.name = "checkpoint.resume",
       .meaning = "\"auto\": from the newest usable checkpoint of run.output, if any; "
                  "\"none\": from the start; or the path of a checkpoint, or of a run's "
                  "folder with some",
       .restart = Restart::kFree,
       .path = true});

  declare_guard_keys(keys, config.guard);

  keys.add_section("output", "What is written besides checkpoints and metrics.csv.");
  add(config.output.every, "output.every", "from one line of the log to the next",
      from_to(1, 1.0e9), "steps");
  keys.add(
      config.output.gradients_at,
      {.name = "output.gradients_at",
       .meaning = "steps, counted from 1, whose gradients are written to HDF5 before "
                  "clipping",
       .unit = "steps",
       .range = from_to(1, 1.0e9),
       .restart = Restart::kFree});
}

}  // namespace pleat::train
