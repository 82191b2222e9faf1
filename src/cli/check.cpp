// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "model_report.hpp"
#include "pleat/cli/commands.hpp"
#include "pleat/comm/grid_shape.hpp"
#include "pleat/io/token_data.hpp"
#include "pleat/train/run_config.hpp"

namespace pleat::cli {
namespace {

struct CheckOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::string preset;
  std::int64_t sequence = 4096;
  std::int64_t ranks = 1;
  bool no_data = false;
};

plan::Mapping mapping_of(const comm::GridShape& grid) {
  using comm::Axis;
  return {grid.degree(Axis::kPipeline),    grid.degree(Axis::kData),
          grid.degree(Axis::kContext),     grid.degree(Axis::kTensor),
          grid.degree(Axis::kExpertData),  grid.degree(Axis::kExpert),
          grid.degree(Axis::kExpertTensor)};
}

std::string grid_report(const comm::GridShape& grid) {
  const auto line = [&](const char* layers, const std::array<comm::Axis, 4>& axes) {
    std::string text = fmt::format("  {:<10}", layers);
    for (const comm::Axis axis : axes) {
      text += fmt::format(" {} {}", comm::axis_name(axis), grid.degree(axis));
    }
    return text + "\n";
  };
  return fmt::format("mapping: {} {}\n", grid.ranks(),
                     grid.ranks() == 1 ? "rank" : "ranks") +
         line("attention", comm::kAttentionAxes) + line("MoE", comm::kMoeAxes);
}

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

void check_deck(const CheckOptions& options) {
  const train::RunConfig config = train::load_run_config(options.deck, options.overrides);
  const train::ParallelSection& parallel = config.parallel;
  const comm::GridShape grid({parallel.pipeline, parallel.context, parallel.tensor,
                              parallel.expert, parallel.expert_tensor},
                             options.ranks);
  const plan::MemoryRequest request{
      .batch = {config.batch.sequence, config.batch.micro, config.batch.global},
      .mapping = mapping_of(grid),
      .recompute = config.precision.recompute,
      .scalar_bytes = config.precision.compute == train::Precision::kFp64 ? 8 : 4};
  plan::validate_mapping(config.model, request.batch, request.mapping);
  std::string report = run_report(config) + shape_report(config.model) +
                       flop_report(config.model, config.batch.sequence) +
                       grid_report(grid) + memory_report(config.model, request);
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
             memory_report(model, request));
}

ExitCode run_check(const CheckOptions& options, const Runtime& runtime) {
  PLEAT_REQUIRE(options.deck.empty() != options.preset.empty(), InputError, "PL0901",
                "command line: expected a deck or --preset NAME\n"
                "HINT: see 'pleat check --help'.");
  if (runtime.rank() != 0) return ExitCode::kDone;
  if (options.preset.empty()) {
    check_deck(options);
  } else {
    check_preset(options);
  }
  return ExitCode::kDone;
}

}  // namespace

void add_check(CLI::App& program, Job& job) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command = program.add_subcommand(
      "check",
      "Checks a deck without running it; prints shapes, counts, FLOPs and memory");
  command->add_option("deck", options->deck, "input deck (TOML)");
  command->add_option("overrides", options->overrides,
                      "section.key=value: replaces what the deck says");
  command->add_option("--ranks", options->ranks, "ranks that the mapping has to fill")
      ->capture_default_str();
  command->add_option("--preset", options->preset,
                      "a published model instead of a deck, e.g. mixtral-8x7b");
  command
      ->add_option("--sequence", options->sequence, "tokens of a sequence, with --preset")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->capture_default_str();
  command->add_flag("--no-data", options->no_data, "leaves the data sources unopened");
  command->callback([&job, options] {
    job = [options](const Runtime& runtime) { return run_check(*options, runtime); };
  });
}

}  // namespace pleat::cli
