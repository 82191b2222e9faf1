// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "pleat/cli/commands.hpp"

namespace pleat::cli {
namespace {

struct InspectOptions {
  std::string file;
};

ExitCode run_inspect(const InspectOptions&, const Runtime&) {
  PLEAT_FAIL(InternalError, "PL0900", "pleat inspect: not there yet");
}

}  // namespace

void add_inspect(CLI::App& program, Job& job) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = program.add_subcommand("inspect", "Shows what is in a checkpoint or data file");
  command->add_option("file", options->file, "checkpoint or data file")->required();
  command->callback([&job, options] {
    job = [options](const Runtime& runtime) { return run_inspect(*options, runtime); };
  });
}

}  // namespace pleat::cli
