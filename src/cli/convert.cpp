// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "convert_model.hpp"
#include "output_place.hpp"
#include "pleat/cli/commands.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/hugging_face.hpp"
#include "pleat/io/places.hpp"
#include "pleat/io/token_convert.hpp"
#include "program.hpp"

namespace pleat::cli {
namespace {

struct ConvertOptions {
  std::string from;
  std::string to;
  std::string type;
  std::string shard_size = "5GB";
  bool force = false;
  io::TokenConversion tokens;
};

/// "5GB" (decimal, as Hugging Face counts) or "5GiB".
std::int64_t parse_bytes(const std::string& text) {
  double number = 0.0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const std::string unit(stop, end);
  const std::pair<const char*, double> units[] = {{"B", 1.0},
                                                  {"kB", 1e3},
                                                  {"KB", 1e3},
                                                  {"MB", 1e6},
                                                  {"GB", 1e9},
                                                  {"KiB", 1024.0},
                                                  {"MiB", 1024.0 * 1024},
                                                  {"GiB", 1024.0 * 1024 * 1024}};
  for (const auto& [name, factor] : units) {
    const bool sound = error == std::errc() && number > 0.0 && number * factor >= 1.0 &&
                       number * factor < 1e18;
    if (unit == name && sound) return static_cast<std::int64_t>(number * factor);
  }
  PLEAT_FAIL(InputError, "PL0901",
             "--max-shard-size is '{}', expected a size such as 5GB, 500MB or 2GiB",
             text);
}

/// A file under a name of another kind misleads whoever finds it.
void require_checkpoint_name(const ConvertOptions& options) {
  const std::string extension = std::filesystem::path(options.to).extension();
  PLEAT_REQUIRE(extension == ".h5" || extension == ".hdf5", InputError, "PL0926",
                "'{}' is a model folder, which becomes a checkpoint: expected a name in .h5, "
                "found '{}'",
                options.from, options.to);
}

void require_folder_name(const ConvertOptions& options) {
  const std::string extension = std::filesystem::path(options.to).extension();
  PLEAT_REQUIRE(extension != ".safetensors" && !io::is_token_target(options.to), InputError,
                "PL0926",
                "'{}' is a checkpoint, which becomes a Hugging Face folder: expected the name "
                "of a folder, found '{}'\n"
                "HINT: leave {} out.",
                options.from, options.to, extension);
}

ModelConversion model_conversion(const ConvertOptions& options) {
  ModelConversion conversion;
  conversion.from = options.from;
  conversion.to = options.to;
  conversion.shard_bytes = parse_bytes(options.shard_size);
  conversion.force = options.force;
  if (options.type.empty()) return conversion;
  conversion.type = io::parse_element_type(options.type);
  PLEAT_REQUIRE(conversion.type.has_value(), InputError, "PL0901",
                "--dtype is '{}', expected f64, f32, bf16 or f16", options.type);
  return conversion;
}

/// Token files end in what is_token_target() knows; a checkpoint as source is never one.
std::string convert_tokens(const ConvertOptions& options) {
  PLEAT_REQUIRE(
      io::is_token_target(options.to), InputError, "PL0924",
      "'{}' is neither a model folder (with config.json), nor a checkpoint, nor a run "
      "folder with checkpoints, and '{}' is not the name of a token file\n"
      "HINT: see 'pleat convert --help'.",
      options.from, options.to);
  require_free_file(options.to, options.force);
  return io::convert_token_file(options.from, options.to, options.tokens);
}

/// The checkpoint that a path means, if any; an HDF5 file with tokens is none.
std::string find_checkpoint(const std::string& from) {
  const bool tokens = io::is_checkpoint(from) &&
                      !io::Hdf5File::open_read(from).root().has_attribute("format");
  return tokens ? "" : resolve_checkpoint(from);
}

std::string convert(const ConvertOptions& options) {
  std::error_code ignored;
  PLEAT_REQUIRE(!std::filesystem::equivalent(options.from, options.to, ignored),
                InputError, "PL0920", "'{}' cannot be converted into itself",
                options.from);
  ModelConversion conversion = model_conversion(options);
  if (io::is_hugging_face_folder(options.from)) {
    require_checkpoint_name(options);
    return convert_to_checkpoint(conversion);
  }
  conversion.from = find_checkpoint(options.from);
  if (conversion.from.empty()) return convert_tokens(options);
  require_folder_name(options);
  return convert_to_hugging_face(conversion);
}

ExitCode run_convert(const ConvertOptions& options, const Runtime& runtime) {
  if (runtime.rank() != 0) return ExitCode::kDone;  // one rank does it all
  PLEAT_REQUIRE(io::is_there(options.from) ||
                    io::is_there(options.from + ".idx"),
                InputError, "PL0924", "'{}' does not exist", options.from);
  fmt::print("{}\n", convert(options));
  return ExitCode::kDone;
}

constexpr const char* kFooter = R"(What A is decides the direction:
  folder with config.json            -> B is a checkpoint file: NAME.h5
  checkpoint, or a run's folder      -> B is a Hugging Face folder: NAME
  text, Megatron .bin/.idx, HDF5     -> B is a token file: NAME.bin or NAME.h5
Tensors keep their type, bit for bit, unless --dtype says otherwise.)";

}  // namespace

void add_convert(CLI::App& program, Job& job) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* command = add_command(
      program, "convert",
      "Converts between Hugging Face folders, checkpoints and token files");
  command->footer(kFooter);
  command->add_option("A", options->from, "what is read")->required();
  command->add_option("B", options->to, "what is written")->required();
  command->add_option("--dtype", options->type,
                      "type of the written tensors: f64, f32, bf16, f16");
  command
      ->add_option("--max-shard-size", options->shard_size,
                   "limit of one safetensors file, e.g. 5GB")
      ->capture_default_str();
  command
      ->add_option("--tokenizer", options->tokens.tokenizer,
                   "of a text: bytes or a SentencePiece model")
      ->capture_default_str();
  command->add_option("--dataset", options->tokens.dataset, "of an HDF5 token file")
      ->capture_default_str();
  command->add_option("--sequence", options->tokens.sequence,
                      "to HDF5 tokens: samples have one token more");
  command->add_flag("--force", options->force, "overwrites what exists");
  command->callback([&job, options] {
    job.work = [options](const Runtime& runtime) { return run_convert(*options, runtime); };
  });
}

}  // namespace pleat::cli
