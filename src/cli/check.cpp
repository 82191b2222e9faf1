// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "pleat/cli/commands.hpp"

namespace pleat::cli {
namespace {

struct CheckOptions {
  std::string deck;
  std::vector<std::string> overrides;
};

ExitCode run_check(const CheckOptions&, const Runtime&) {
  PLEAT_FAIL(InternalError, "PL0900", "pleat check: not there yet");
}

}  // namespace

void add_check(CLI::App& program, Job& job) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command = program.add_subcommand("check", "Checks a deck without running it; prints shapes, counts and memory");
  command->add_option("deck", options->deck, "input deck (TOML)")->required();
  command->add_option("overrides", options->overrides,
                      "section.key=value: replaces what the deck says");
  command->callback([&job, options] {
    job = [options](const Runtime& runtime) { return run_check(*options, runtime); };
  });
}

}  // namespace pleat::cli
