// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "pleat/cli/commands.hpp"

namespace pleat::cli {
namespace {

struct ConvertOptions {
  std::string from;
  std::string to;
};

ExitCode run_convert(const ConvertOptions&, const Runtime&) {
  PLEAT_FAIL(InternalError, "PL0900", "pleat convert: not there yet");
}

}  // namespace

void add_convert(CLI::App& program, Job& job) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* command = program.add_subcommand("convert", "Converts between Hugging Face folders and checkpoints");
  command->add_option("from", options->from, "what is read")->required();
  command->add_option("to", options->to, "what is written")->required();
  command->callback([&job, options] {
    job = [options](const Runtime& runtime) { return run_convert(*options, runtime); };
  });
}

}  // namespace pleat::cli
