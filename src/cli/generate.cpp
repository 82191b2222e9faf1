// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "pleat/cli/commands.hpp"

namespace pleat::cli {
namespace {

struct GenerateOptions {
  std::string checkpoint;
};

ExitCode run_generate(const GenerateOptions&, const Runtime&) {
  PLEAT_FAIL(InternalError, "PL0900", "pleat generate: not there yet");
}

}  // namespace

void add_generate(CLI::App& program, Job& job) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = program.add_subcommand("generate", "Writes text with a trained checkpoint");
  command->add_option("checkpoint", options->checkpoint, "checkpoint")->required();
  command->callback([&job, options] {
    job = [options](const Runtime& runtime) { return run_generate(*options, runtime); };
  });
}

}  // namespace pleat::cli
