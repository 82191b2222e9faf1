// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "pleat/base/spelling.hpp"
#include "pleat/cli/commands.hpp"
#include "program.hpp"

namespace pleat::cli {
namespace {

/// Prints on one rank, whatever the number of ranks.
Job print_job(std::string text) {
  return {.work =
              [text = std::move(text)](const Runtime& runtime) {
                if (runtime.rank() == 0) std::fputs(text.c_str(), stdout);
                return ExitCode::kDone;
              },
          .computes = false};
}

/// "pleat" or "pleat train": whose help explains the mistake.
std::string name_of_chosen(const CLI::App& program) {
  const auto chosen = program.get_subcommands();
  return chosen.empty() ? "pleat" : "pleat " + chosen.front()->get_name();
}

/// CLI11 says of "pleat trian" only that a command is missing.
void require_known_command(const CLI::App& program, const std::string& word) {
  if (word.starts_with('-')) return;
  std::vector<std::string> names;
  for (const CLI::App* command : program.get_subcommands({})) {
    names.push_back(command->get_name());
    if (names.back() == word) return;
  }
  const std::string nearest = nearest_spelling(word, names);
  PLEAT_FAIL(InputError, "PL0901",
             "there is no command '{}'; did you mean '{}'?\n"
             "HINT: 'pleat --help' lists the commands.",
             word, nearest.empty() ? "train" : nearest);
}

}  // namespace

Job read_command_line(int argc, const char* const* argv) {
  Job job;
  const auto made =
      make_program("Pleat trains Mixture-of-Experts transformers.", "pleat");
  CLI::App& program = *made;
  program.set_version_flag("--version", "pleat " PLEAT_VERSION);
  program.require_subcommand(1);
  program.footer("'pleat COMMAND --help' explains a command; docs/decks.md the deck.");
  add_train(program, job);
  add_verify(program, job);
  add_check(program, job);
  add_map(program, job);
  add_params(program, job);
  add_convert(program, job);
  add_inspect(program, job);
  add_generate(program, job);
  add_batch(program, job);
  add_bench(program, job);
  if (argc <= 1) return print_job(program.help());
  require_known_command(program, argv[1]);
  try {
    program.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return print_job(program.help());
  } catch (const CLI::CallForAllHelp&) {
    return print_job(program.help("", CLI::AppFormatMode::All));
  } catch (const CLI::CallForVersion& version) {
    return print_job(std::string(version.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    PLEAT_FAIL(InputError, "PL0901", "command line: {}\nHINT: see '{} --help'.",
               error.what(), name_of_chosen(program));
  }
  return job;
}

}  // namespace pleat::cli
