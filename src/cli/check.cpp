// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "grid_report.hpp"
#include "model_report.hpp"
#include "pleat/cli/commands.hpp"
#include "pleat/io/token_data.hpp"
#include "pleat/train/grid_choice.hpp"
#include "program.hpp"

namespace pleat::cli {
namespace {

struct CheckOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::string preset;
  std::int64_t sequence = 4096;
  std::optional<std::int64_t> ranks;
  bool no_data = false;
};

/// Opens every source, so that missing, broken and foreign files show here.
std::string data_report(const train::RunConfig& config) {
  const auto data = io::open_token_data(config.data, config.batch.sequence,
                                        config.model.vocab, config.run.seed);
  const auto samples = static_cast<double>(config.run.steps * config.batch.global);
  return fmt::format("data: {}\n  the run reads {:.2f} epochs\n", data->description(),
                     samples / static_cast<double>(data->training_samples()));
}

std::string run_report(const train::RunConfig& config) {
  const std::int64_t tokens = config.batch.global * config.batch.sequence;
  return fmt::format(
      "run '{}': {} steps of {} tokens ({} sequences of {}, {} micro-batches), "
      "{:.4g} tokens in all\n  output: {}\n",
      config.run.name, config.run.steps, tokens, config.batch.global,
      config.batch.sequence, config.batch.global / config.batch.micro,
      static_cast<double>(tokens) * static_cast<double>(config.run.steps),
      config.run.output);
}

/// One request for each stage of the pipeline.
std::vector<plan::MemoryRequest> stage_requests(const train::RunConfig& config,
                                                const comm::GridShape& grid) {
  std::vector<plan::MemoryRequest> requests;
  for (std::int64_t stage = 0; stage < grid.degree(comm::Axis::kPipeline); ++stage)
    requests.push_back(train::memory_request(config, grid, stage));
  return requests;
}

/// Data ranks that have fewer micro-batches than others wait for them.
std::string balance_note(const train::RunConfig& config, const comm::GridShape& grid) {
  const std::int64_t data = grid.degree(comm::Axis::kData);
  const std::int64_t micro_batches = config.batch.global / config.batch.micro;
  if (micro_batches % data == 0) return "";
  return fmt::format(
      "  NOTE: {} micro-batches do not divide evenly over {} data ranks; the others fill "
      "up "
      "with padding\n",
      micro_batches, data);
}

/// Those asked for, or of the job that this runs in.
std::optional<std::int64_t> known_ranks(const CheckOptions& options,
                                        const Runtime& runtime) {
  if (options.ranks) return options.ranks;
  if (runtime.ranks() > 1) return runtime.ranks();
  return std::nullopt;
}

std::string ranks_note(const CheckOptions& options, const Runtime& runtime,
                       std::int64_t ranks) {
  if (options.ranks || ranks == 1) return "";
  if (runtime.ranks() > 1) return "  the ranks of this job; --ranks asks for others\n";
  return "  the fewest ranks that the degrees of [parallel] allow; --ranks asks for "
         "others\n";
}

void check_deck(const CheckOptions& options, const Runtime& runtime) {
  const std::optional<std::int64_t> known = known_ranks(options, runtime);
  const train::RunConfig config =
      train::load_run_config(options.deck, options.overrides, known);
  const std::int64_t ranks =
      known ? *known : comm::fewest_ranks(train::degrees_of(config));
  const comm::GridShape grid = train::grid_shape_of(config, ranks);
  std::string report = run_report(config) + shape_report(config.model) +
                       flop_report(config.model, config.batch.sequence) +
                       grid_summary(grid) + ranks_note(options, runtime, ranks) +
                       balance_note(config, grid) + stage_report(config, grid) +
                       memory_report(config.model, stage_requests(config, grid));
  if (!options.no_data) report += data_report(config);
  fmt::print("{}{}: no problems found\n", report, options.deck);
}

void check_preset(const CheckOptions& options) {
  const plan::ModelConfig model = plan::preset(options.preset);
  const plan::MemoryRequest request{.batch = {options.sequence, 1, 1},
                                    .mapping = {},
                                    .recompute = plan::Recompute::kNone,
                                    .scalar_bytes = 4};
  fmt::print("{}{}{}", shape_report(model), flop_report(model, options.sequence),
             memory_report(model, {request}));
}

ExitCode run_check(const CheckOptions& options, const Runtime& runtime) {
  PLEAT_REQUIRE(options.deck.empty() != options.preset.empty(), InputError, "PL0901",
                "command line: expected a deck or --preset NAME\n"
                "HINT: see 'pleat check --help'.");
  if (runtime.rank() != 0) return ExitCode::kDone;
  if (options.preset.empty()) {
    check_deck(options, runtime);
  } else {
    check_preset(options);
  }
  return ExitCode::kDone;
}

}  // namespace

void add_check(CLI::App& program, Job& job) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command = add_command(
      program, "check",
      "Checks a deck without running it; prints shapes, counts, FLOPs and memory");
  command->add_option("deck", options->deck, "input deck (TOML)");
  command->add_option("overrides", options->overrides,
                      "section.key=value: replaces what the deck says");
  command->add_option(
      "--ranks", options->ranks,
      "ranks that the mapping has to fill; without it those of mpirun, or "
      "the fewest that fit the degrees of [parallel]");
  command->add_option("--preset", options->preset,
                      "a published model instead of a deck, e.g. mixtral-8x7b");
  command
      ->add_option("--sequence", options->sequence, "tokens of a sequence, with --preset")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->capture_default_str();
  command->add_flag("--no-data", options->no_data, "leaves the data sources unopened");
  command->callback([&job, options] {
    job = {.work = [options](const Runtime& runtime) { return run_check(*options, runtime); },
           .computes = false};
  });
}

}  // namespace pleat::cli
