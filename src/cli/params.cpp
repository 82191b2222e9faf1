// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "pleat/cli/commands.hpp"
#include "pleat/train/deck_keys.hpp"
#include "program.hpp"

namespace pleat::cli {
namespace {

ExitCode run_params(bool markdown, const Runtime& runtime) {
  if (runtime.rank() != 0) return ExitCode::kDone;
  const std::string text =
      markdown ? train::deck_reference_markdown() : train::deck_reference();
  std::fputs(text.c_str(), stdout);
  return ExitCode::kDone;
}

}  // namespace

void add_params(CLI::App& program, Job& job) {
  auto markdown = std::make_shared<bool>(false);
  CLI::App* command = add_command(
      program, "params", "Lists every key of a deck: default, allowed values, meaning");
  command->add_flag("--markdown", *markdown, "as Markdown: the text of docs/decks.md");
  command->callback([&job, markdown] {
    job = {.work = [markdown](const Runtime& runtime) { return run_params(*markdown, runtime); },
           .computes = false};
  });
}

}  // namespace pleat::cli
