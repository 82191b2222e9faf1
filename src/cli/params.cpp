// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "pleat/cli/commands.hpp"

namespace pleat::cli {
namespace {

struct ParamsOptions {
  bool markdown = false;
};

ExitCode run_params(const ParamsOptions&, const Runtime&) {
  PLEAT_FAIL(InternalError, "PL0900", "pleat params: not there yet");
}

}  // namespace

void add_params(CLI::App& program, Job& job) {
  auto options = std::make_shared<ParamsOptions>();
  CLI::App* command = program.add_subcommand("params", "Lists every key of a deck");
  command->add_flag("--markdown", options->markdown, "writes docs/decks.md to stdout");
  command->callback([&job, options] {
    job = [options](const Runtime& runtime) { return run_params(*options, runtime); };
  });
}

}  // namespace pleat::cli
