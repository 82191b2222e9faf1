// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "inspect_model.hpp"
#include "pleat/base/error.hpp"
#include "pleat/cli/commands.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/hugging_face.hpp"
#include "pleat/io/places.hpp"
#include "pleat/io/token_convert.hpp"
#include "program.hpp"

namespace pleat::cli {
namespace {

void require_no_json(const InspectOptions& options) {
  PLEAT_REQUIRE(!options.json, InputError, "PL0901",
                "command line: --json is for checkpoints and run folders, '{}' is neither",
                options.file);
}

void print_tokens(const InspectOptions& options) {
  require_no_json(options);
  fmt::print("token file   {}\n{}", options.file,
             io::to_text(io::inspect_token_file(options.file, options.dataset)));
}

enum class Hdf5Content { kCheckpoint, kTokens, kOther };

Hdf5Content content_of(const InspectOptions& options) {
  try {
    const io::Hdf5File file = io::Hdf5File::open_read(options.file);
    if (file.root().has_attribute("format")) return Hdf5Content::kCheckpoint;
    return file.root().has(options.dataset) ? Hdf5Content::kTokens : Hdf5Content::kOther;
  } catch (const InputError&) {
    return Hdf5Content::kCheckpoint;  // which reports the damage
  }
}

/// A checkpoint, token data or something else in HDF5.
void inspect_hdf5_file(const InspectOptions& options) {
  switch (content_of(options)) {
    case Hdf5Content::kCheckpoint:
      return inspect_checkpoint(options.file, options);
    case Hdf5Content::kTokens:
      return print_tokens(options);
    case Hdf5Content::kOther:
      require_no_json(options);
      return inspect_hdf5(options.file);
  }
}

void inspect_folder(const InspectOptions& options) {
  const bool model =
      io::is_hugging_face_folder(options.file) ||
      io::is_there(options.file + "/model.safetensors") ||
      io::is_there(options.file + "/model.safetensors.index.json");
  if (model) {
    require_no_json(options);
    return inspect_safetensors(options.file, options);
  }
  PLEAT_REQUIRE(inspect_run(options.file, options), InputError, "PL0924",
                "the folder '{}' holds neither a model (config.json, *.safetensors) nor "
                "checkpoints",
                options.file);
}

ExitCode run_inspect(const InspectOptions& options, const Runtime& runtime) {
  if (runtime.rank() != 0) return ExitCode::kDone;
  if (io::is_folder(options.file)) {
    inspect_folder(options);
  } else if (io::is_checkpoint(options.file)) {
    inspect_hdf5_file(options);
  } else if (options.file.ends_with(".safetensors")) {
    require_no_json(options);
    inspect_safetensors(options.file, options);
  } else {
    print_tokens(options);
  }
  return ExitCode::kDone;
}

}  // namespace

void add_inspect(CLI::App& program, Job& job) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = add_command(
      program, "inspect",
      "Shows what is in a checkpoint, model or data file, and checks it");
  command
      ->add_option("file", options->file,
                   "checkpoint, run folder, safetensors or token file")
      ->required();
  command->add_flag("--tensors", options->tensors, "one line for each tensor");
  command->add_flag("--statistics", options->statistics,
                    "the same with min, max, mean and rms");
  command->add_flag("--deck", options->deck, "prints the deck that a checkpoint keeps");
  command->add_flag("--history", options->history,
                    "every job that had a part in it, however many");
  command->add_flag("--json", options->json,
                    "all facts about a checkpoint or run folder for scripts, as JSON");
  command->add_option("--dataset", options->dataset, "of an HDF5 token file")
      ->capture_default_str();
  command->callback([&job, options] {
    job.work = [options](const Runtime& runtime) { return run_inspect(*options, runtime); };
  });
}

}  // namespace pleat::cli
