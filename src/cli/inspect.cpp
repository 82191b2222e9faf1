// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "convert_model.hpp"
#include "inspect_model.hpp"
#include "pleat/cli/commands.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/hugging_face.hpp"
#include "pleat/io/token_convert.hpp"

namespace pleat::cli {
namespace {

void print_tokens(const InspectOptions& options) {
  fmt::print("token file   {}\n{}", options.file,
             io::to_text(io::inspect_token_file(options.file, options.dataset)));
}

/// A checkpoint, token data or something else in HDF5.
void inspect_hdf5_file(const std::string& path, const InspectOptions& options) {
  bool checkpoint = false;
  bool tokens = false;
  {
    const io::Hdf5File file = io::Hdf5File::open_read(path);
    checkpoint = file.root().has_attribute("format");
    tokens = file.root().has(options.dataset);
  }
  if (checkpoint) {
    inspect_checkpoint(path, options);
  } else if (tokens) {
    print_tokens(options);
  } else {
    inspect_hdf5(path);
  }
}

void inspect_folder(const InspectOptions& options) {
  const bool model =
      io::is_hugging_face_folder(options.file) ||
      std::filesystem::exists(options.file + "/model.safetensors") ||
      std::filesystem::exists(options.file + "/model.safetensors.index.json");
  if (model) return inspect_safetensors(options.file, options);
  const std::string checkpoint = resolve_checkpoint(options.file);
  PLEAT_REQUIRE(!checkpoint.empty(), InputError, "PL0924",
                "the folder '{}' holds neither a model (config.json, *.safetensors) nor "
                "checkpoints",
                options.file);
  inspect_checkpoint(checkpoint, options);
}

ExitCode run_inspect(const InspectOptions& options, const Runtime& runtime) {
  if (runtime.rank() != 0) return ExitCode::kDone;
  if (std::filesystem::is_directory(options.file)) {
    inspect_folder(options);
  } else if (io::is_checkpoint(options.file)) {
    inspect_hdf5_file(options.file, options);
  } else if (options.file.ends_with(".safetensors")) {
    inspect_safetensors(options.file, options);
  } else {
    print_tokens(options);
  }
  return ExitCode::kDone;
}

}  // namespace

void add_inspect(CLI::App& program, Job& job) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = program.add_subcommand(
      "inspect", "Shows what is in a checkpoint, model or data file, and checks it");
  command
      ->add_option("file", options->file,
                   "checkpoint, run folder, safetensors or token file")
      ->required();
  command->add_flag("--tensors", options->tensors, "one line for each tensor");
  command->add_flag("--statistics", options->statistics,
                    "the same with min, max, mean and rms");
  command->add_flag("--deck", options->deck, "prints the deck that a checkpoint keeps");
  command->add_option("--dataset", options->dataset, "of an HDF5 token file")
      ->capture_default_str();
  command->callback([&job, options] {
    job = [options](const Runtime& runtime) { return run_inspect(*options, runtime); };
  });
}

}  // namespace pleat::cli
