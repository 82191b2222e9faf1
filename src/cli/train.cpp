// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "pleat/cli/commands.hpp"
#include "pleat/train/trainer.hpp"
#include "program.hpp"

namespace pleat::cli {
namespace {

struct TrainOptions {
  std::string deck;
  std::vector<std::string> overrides;
};

ExitCode run_train(const TrainOptions& options, const Runtime& runtime) {
  const train::RunConfig config =
      train::load_run_config(options.deck, options.overrides, runtime.ranks());
  Log log(runtime.rank() == 0);
  return train::train(config, runtime, log);
}

}  // namespace

void add_train(CLI::App& program, Job& job) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* command =
      add_command(program, "train", "Trains the model that a deck describes");
  command->add_option("deck", options->deck, "input deck (TOML)")->required();
  command->add_option("overrides", options->overrides,
                      "section.key=value: replaces what the deck says");
  command->callback([&job, options] {
    job.work = [options](const Runtime& runtime) { return run_train(*options, runtime); };
  });
}

}  // namespace pleat::cli
