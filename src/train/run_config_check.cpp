// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Keys that must fit together.
#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "pleat/base/error.hpp"
#include "pleat/train/stop_requests.hpp"
#include "run_config_steps.hpp"

namespace pleat::train {
namespace {

void check_name(const io::Deck& deck, const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '.' || c == '_' || c == '-';
  };
  const bool good = !name.empty() && name.size() <= 128 && name.front() != '.' &&
                    std::all_of(name.begin(), name.end(), allowed);
  PLEAT_REQUIRE(
      good, InputError, "PL0206",
      "{}: run.name: found \"{}\", expected letters, digits, '.', '_' and '-' (at "
      "most 128, the first no '.')\nHINT: it becomes the name of a folder.",
      deck.where("run.name"), name);
}

void check_batch(const io::Deck& deck, const BatchSection& batch) {
  PLEAT_REQUIRE(batch.global % batch.micro == 0, InputError, "PL0209",
                "{}: batch.global = {} is not a multiple of batch.micro = {}\n"
                "HINT: a step is made of whole micro-batches.",
                deck.where(deck.given("batch.global") ? "batch.global" : "batch.micro"),
                batch.global, batch.micro);
}

void check_optimizer(const io::Deck& deck, const RunConfig& config) {
  const OptimizerSection& optimizer = config.optimizer;
  PLEAT_REQUIRE(optimizer.warmup <= config.run.steps, InputError, "PL0209",
                "{}: optimizer.warmup = {} is more than run.steps = {}\n"
                "HINT: the warm-up is part of the run.",
                deck.where("optimizer.warmup"), optimizer.warmup, config.run.steps);
  PLEAT_REQUIRE(optimizer.min_lr <= optimizer.lr, InputError, "PL0209",
                "{}: optimizer.min_lr = {} is more than optimizer.lr = {}\n"
                "HINT: the rate falls from lr to min_lr.",
                deck.where("optimizer.min_lr"), optimizer.min_lr, optimizer.lr);
}

/// Numbers that keep a division from being one by zero. Norms, moments and the weights that
/// the optimizer works on are fp32 with bf16 too; subnormal numbers count as zero on some
/// machines.
void check_divisors(const io::Deck& deck, const RunConfig& config) {
  const bool wide = config.precision.compute == Precision::kFp64;
  const double least = wide ? std::numeric_limits<double>::min()
                            : double{std::numeric_limits<float>::min()};
  const double most = wide ? std::numeric_limits<double>::max()
                           : double{std::numeric_limits<float>::max()};
  const std::pair<const char*, double> divisors[] = {
      {"optimizer.eps", config.optimizer.eps}, {"model.norm_eps", config.model.norm_eps}};
  for (const auto& [name, value] : divisors) {
    PLEAT_REQUIRE(value >= least && value <= most, InputError, "PL0206",
                  "{}: {}: found {}, expected {:.3g} to {:.3g}, the numbers that {} holds "
                  "in full\nHINT: it is computed with in {}, see precision.compute.",
                  deck.where(name), name, value, least, most, wide ? "fp64" : "fp32",
                  wide ? "fp64" : "fp32");
  }
}

void check_data(const io::Deck& deck, const RunConfig& config) {
  const io::DataConfig& data = config.data;
  const bool synthetic = data.format == io::DataFormat::kSynthetic;
  const bool named = std::none_of(data.paths.begin(), data.paths.end(),
                                  [](const std::string& path) { return path.empty(); });
  PLEAT_REQUIRE(synthetic || (named && !data.paths.empty()), InputError, "PL0208",
                "{}: data.path: missing, expected the path of a file\n"
                "HINT: data.format = \"synthetic\" needs none.",
                deck.where("data.path"));
  PLEAT_REQUIRE(data.weights.empty() || data.weights.size() == data.paths.size(),
                InputError, "PL0209",
                "{}: data.weights has {} entries for {} sources of data.path\n"
                "HINT: give one weight for each source, or none.",
                deck.where("data.weights"), data.weights.size(), data.paths.size());
  PLEAT_REQUIRE(data.format != io::DataFormat::kHdf5 || !data.dataset.empty(), InputError,
                "PL0208",
                "{}: data.dataset: missing, expected the path of an HDF5 dataset",
                deck.where("data.dataset"));
  PLEAT_REQUIRE(config.validation.every == 0 || data.split > 0.0, InputError, "PL0209",
                "{}: validation.every = {}, but data.split = 0 holds nothing out\n"
                "HINT: set data.split, for example to 0.05.",
                deck.where("validation.every"), config.validation.every);
}

void check_output(const io::Deck& deck, const RunConfig& config) {
  for (const std::int64_t step : config.output.gradients_at) {
    PLEAT_REQUIRE(step <= config.run.steps, InputError, "PL0209",
                  "{}: output.gradients_at: step {} is beyond run.steps = {}\n"
                  "HINT: steps are counted from 1.",
                  deck.where("output.gradients_at"), step, config.run.steps);
  }
  PLEAT_REQUIRE(
      !config.checkpoint.resume.empty(), InputError, "PL0206",
      "{}: checkpoint.resume: found \"\", expected \"auto\", \"none\" or a path",
      deck.where("checkpoint.resume"));
}

void check_interruptions(const io::Deck& deck, const RunConfig& config) {
  const std::string& limit = config.run.wall_limit;
  PLEAT_REQUIRE(limit.empty() || limit == "auto" || parse_wall_limit(limit), InputError,
                "PL0206",
                "{}: run.wall_limit: found \"{}\", expected \"auto\", or a time such as "
                "\"3h50m\", \"90m\", \"03:50:00\" or \"1-00:00:00\"",
                deck.where("run.wall_limit"), limit);
  const bool returns = config.guard.non_finite == GuardAction::kRollback ||
                       config.guard.spike == GuardAction::kRollback;
  PLEAT_REQUIRE(!returns || config.checkpoint.every > 0, InputError, "PL0209",
                "{}: guard: \"rollback\", but checkpoint.every = 0 writes no checkpoint before "
                "the last step\nHINT: set checkpoint.every.",
                deck.where(config.guard.spike == GuardAction::kRollback ? "guard.spike"
                                                                        : "guard.non_finite"));
}

}  // namespace

void check_consistency(const io::Deck& deck, const RunConfig& config,
                       std::optional<std::int64_t> ranks) {
  check_name(deck, config.run.name);
  check_batch(deck, config.batch);
  check_parallel(deck, config, ranks);
  check_optimizer(deck, config);
  check_divisors(deck, config);
  check_data(deck, config);
  check_output(deck, config);
  check_interruptions(deck, config);
}

}  // namespace pleat::train
