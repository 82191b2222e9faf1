// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/run_config.hpp"

#include "pleat/io/checkpoint.hpp"
#include "pleat/io/places.hpp"
#include "run_config_steps.hpp"

namespace pleat::train {
namespace {

constexpr const char* kResolvedHeader =
    "# Every key of the run, as Pleat resolved them; `pleat train` accepts this "
    "file.\n\n";

/// Defaults that follow from other keys.
void fill_defaults(const io::Deck& deck, RunConfig& config) {
  if (config.run.output.empty()) config.run.output = "runs/" + config.run.name;
  if (!deck.given("batch.global")) config.batch.global = config.batch.micro;
  ParallelSection& parallel = config.parallel;
  if (!deck.given("parallel.chunks")) {
    const bool interleaved = parallel.schedule == plan::PipelineSchedule::kInterleaved;
    parallel.chunks = interleaved ? 2 : 1;
  }
}

/// The resolved deck lies elsewhere, so what was found beside the deck becomes absolute.
void find_files(const io::Deck& deck, RunConfig& config) {
  for (std::string& path : config.data.paths) path = deck.find_path(path);
  if (config.data.tokenizer != "bytes")
    config.data.tokenizer = deck.find_path(config.data.tokenizer);
  std::string& resume = config.checkpoint.resume;
  if (resume != "auto" && resume != "none") resume = find_checkpoint(deck.find_path(resume));
}

}  // namespace

std::string find_checkpoint(const std::string& path) {
  if (!io::is_folder(path)) return path;
  const std::string newest = io::newest_checkpoint(path);
  return newest.empty() ? path : newest;
}

RunConfig load_run_config(const std::string& path,
                          const std::vector<std::string>& overrides,
                          std::optional<std::int64_t> ranks) {
  // 1. The deck, each value checked by itself.
  DeckFields fields;
  const io::DeckKeys keys = declare_deck_keys(fields);
  const io::Deck deck(path, overrides, keys);
  deck.store(keys);

  // 2. What follows from other keys and files.
  resolve_model(deck, keys, fields);
  fill_defaults(deck, fields.config);
  find_files(deck, fields.config);

  // 3. All values together.
  check_consistency(deck, fields.config, ranks);

  fields.config.resolved_deck = kResolvedHeader + io::write_deck(keys);
  return fields.config;
}

}  // namespace pleat::train
