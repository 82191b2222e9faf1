// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "grid_report.hpp"
#include "grid_svg.hpp"
#include "option_checks.hpp"
#include "output_place.hpp"
#include "pleat/cli/commands.hpp"
#include "pleat/io/durable_file.hpp"
#include "pleat/train/grid_choice.hpp"
#include "program.hpp"

namespace pleat::cli {
namespace {

struct MapOptions {
  std::string deck;
  std::vector<std::string> overrides;
  std::int64_t ranks = 1;
  std::int64_t rank = -1;  ///< -1: none was asked for
  std::string svg;
};

/// All ranks of a small grid; of a large one the first, the last and the one asked for.
std::vector<std::int64_t> ranks_to_show(const MapOptions& options) {
  if (options.rank >= 0) return {options.rank};
  if (options.ranks > kMostDrawnRanks) return {0, options.ranks - 1};
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < options.ranks; ++rank) ranks.push_back(rank);
  return ranks;
}

ExitCode run_map(const MapOptions& options, const Runtime& runtime) {
  if (runtime.rank() != 0) return ExitCode::kDone;
  constexpr bool kReplace = true;
  if (!options.svg.empty()) require_free_file(options.svg, kReplace);
  train::RunConfig config =
      train::load_run_config(options.deck, options.overrides, options.ranks);
  const comm::GridShape grid = train::grid_shape_of(config, options.ranks);
  // Worked out once: of many layers it takes long, and each rank's account looks at it.
  config.parallel.layout = train::stage_layout(config);
  PLEAT_REQUIRE(options.rank < options.ranks, InputError, "PL0901",
                "command line: --rank {}: expected 0 to {}", options.rank,
                options.ranks - 1);
  const std::string svg = options.svg.empty() ? "" : grid_svg(grid);
  std::string text = grid_summary(grid);
  if (grid.ranks() <= kMostDrawnRanks) text += grid_picture(grid);
  text += stage_report(config, grid);
  for (const std::int64_t rank : ranks_to_show(options))
    text += "\n" + rank_report(config, grid, rank);
  std::fputs(text.c_str(), stdout);
  if (!options.svg.empty()) io::write_durably(options.svg, svg);
  return ExitCode::kDone;
}

}  // namespace

void add_map(CLI::App& program, Job& job) {
  auto options = std::make_shared<MapOptions>();
  CLI::App* command = add_command(
      program, "map",
      "Shows both process grids of a deck: coordinates, groups, who sends what to whom");
  command->add_option("deck", options->deck, "input deck (TOML)")->required();
  command->add_option("overrides", options->overrides,
                      "section.key=value: replaces what the deck says");
  command
      ->add_option("--ranks", options->ranks,
                   "ranks of the job, which need not be running")
      ->required();
  command->add_option("--rank", options->rank, "shows this rank only")
      ->check(whole_zero_or_more());
  command->add_option("--svg", options->svg, "also draws up to 64 ranks into this file")
      ->check(file_name());
  command->callback([&job, options] {
    job = {.work = [options](const Runtime& runtime) { return run_map(*options, runtime); },
           .computes = false};
  });
}

}  // namespace pleat::cli
