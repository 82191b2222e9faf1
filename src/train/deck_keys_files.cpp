// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Sections [data], [validation], [checkpoint] and [output].
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
            .restart = Restart::kWarns});
  keys.add(data.weights,
           {.name = "data.weights",
            .meaning = "share of each source in the blend; empty: as many as "
                       "its tokens",
            .range = above(0)});
  keys.add(data.dataset,
           {.name = "data.dataset",
            .meaning = "hdf5: path of the tokens in the file, integers whose "
                       "last dimension is sequence + 1"});
  keys.add(data.loss_mask, {.name = "data.loss_mask",
                            .meaning = "hdf5: path of the loss mask, last dimension "
                                       "sequence; empty: every token carries loss"});
  keys.add(data.lengths, {.name = "data.lengths",
                          .meaning = "hdf5: path of the samples' real lengths; what lies "
                                     "beyond is padding; empty: none"});
  keys.add(data.tokenizer, {.name = "data.tokenizer",
                            .meaning = "text: \"bytes\", or the path of a SentencePiece "
                                       "model"});
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
  add(config.checkpoint.keep, "checkpoint.keep", "newest checkpoints that stay; 0: all",
      from_to(0, 1.0e9), "files");
  keys.add(
      config.checkpoint.resume,
      {.name = "checkpoint.resume",
       .meaning = "\"auto\": from the newest usable checkpoint of run.output, if any; "
                  "\"none\": from the start; or the path of a checkpoint",
       .restart = Restart::kFree});

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
