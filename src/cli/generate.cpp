// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "convert_model.hpp"
#include "option_checks.hpp"
#include "pleat/cli/commands.hpp"
#include "pleat/train/generator.hpp"
#include "program.hpp"

namespace pleat::cli {
namespace {

ExitCode run_generate(train::GenerateOptions options, const Runtime& runtime) {
  if (runtime.rank() != 0) return ExitCode::kDone;
  const std::string checkpoint = resolve_checkpoint(options.checkpoint);
  PLEAT_REQUIRE(!checkpoint.empty(), InputError, "PL0931",
                "'{}' is neither a checkpoint nor a run folder with checkpoints\n"
                "HINT: name a .h5 file, or the folder that run.output names.",
                options.checkpoint);
  options.checkpoint = checkpoint;
  const std::string text = train::generate(options);
  std::fwrite(options.prompt.data(), 1, options.prompt.size(), stdout);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
  return ExitCode::kDone;
}

}  // namespace

void add_generate(CLI::App& program, Job& job) {
  auto options = std::make_shared<train::GenerateOptions>();
  CLI::App* command =
      add_command(program, "generate", "Writes text with a trained checkpoint");
  command->add_option("checkpoint", options->checkpoint, "checkpoint file or run folder")
      ->required();
  command->add_option("--prompt", options->prompt, "text to continue");
  command->add_option("--tokens", options->tokens, "how many tokens to write")
      ->check(whole_above_zero())
      ->capture_default_str();
  command->add_option("--temperature", options->temperature, "0: the most probable token")
      ->check(zero_or_more())
      ->capture_default_str();
  command->add_option("--top-k", options->top_k, "choose among the k most probable; 0: all")
      ->check(whole_zero_or_more())
      ->capture_default_str();
  command->add_option("--context", options->context, "tokens that the model looks back at")
      ->check(whole_above_zero())
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of the random choices")->capture_default_str();
  command->add_option("--tokenizer", options->tokenizer, "bytes, or a SentencePiece model")
      ->capture_default_str();
  command->callback([&job, options] {
    job.work = [options](const Runtime& runtime) { return run_generate(*options, runtime); };
  });
}

}  // namespace pleat::cli
