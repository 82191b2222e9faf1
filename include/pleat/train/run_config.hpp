// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Everything that a deck says, as values.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pleat/comm/backend_choice.hpp"
#include "pleat/io/checkpoint.hpp"
#include "pleat/io/token_data.hpp"
#include "pleat/plan/mapping.hpp"
#include "pleat/plan/model_config.hpp"

namespace pleat::train {

enum class Precision { kFp64, kFp32, kBf16 };
using plan::Recompute;
enum class Schedule { kCosine, kLinear, kConstant };

struct RunSection {
  std::string name = "pleat";
  std::uint64_t seed = 1;
  std::int64_t steps = 0;
  std::string output;  ///< folder of the run
  std::string wall_limit;      ///< "3h50m", "03:50:00", "auto" or empty (run_time.hpp)
  std::int64_t watchdog = 0;   ///< seconds without a step after which the job ends; 0: never
};

struct ParallelSection {
  std::int64_t pipeline = 1;
  std::int64_t context = 1;
  std::int64_t tensor = 1;
  std::int64_t expert = 1;
  std::int64_t expert_tensor = 1;
  comm::BackendKind backend = comm::BackendKind::kAuto;
  bool overlap = true;  ///< exchanges run beside the work that follows
  plan::DispatcherKind dispatcher = plan::DispatcherKind::kAllToAll;
  plan::ContextExchange context_exchange = plan::ContextExchange::kRing;
  plan::PipelineSchedule schedule = plan::PipelineSchedule::kOneForwardOneBackward;
  std::int64_t chunks = 1;            ///< of the model per stage; interleaved: 2 or more
  std::vector<std::int64_t> layout;   ///< layers of each virtual stage; empty: balanced
  plan::Sharding sharding = plan::Sharding::kOptimizer;
};

struct BatchSection {
  std::int64_t sequence = 0;
  std::int64_t micro = 1;   ///< sequences of one micro-batch
  std::int64_t global = 1;  ///< sequences of one step, a multiple of micro
};

struct OptimizerSection {
  double lr = 3.0e-4;
  double min_lr = 0.0;
  std::int64_t warmup = 0;
  Schedule schedule = Schedule::kCosine;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1.0e-8;
  double weight_decay = 0.1;
  double clip = 1.0;  ///< 0: no clipping
};

struct PrecisionSection {
  Precision compute = Precision::kFp32;
  Recompute recompute = Recompute::kNone;
};

struct ValidationSection {
  std::int64_t every = 0;    ///< steps between validations; 0: never
  std::int64_t samples = 0;  ///< at most so many held-out samples; 0: all
};

struct CheckpointSection {
  std::int64_t every = 0;  ///< steps; 0: only after the last step
  std::int64_t keep = 0;   ///< newest so many are kept; 0: all
  std::int64_t keep_every = 0;  ///< those of every so many steps are kept for ever; 0: none
  std::string resume = "auto";
  bool asynchronous = true;  ///< the next steps go on while a checkpoint is being written
  std::int64_t beside = 1;   ///< so many of them at most
  io::CheckpointHints hints;
};

/// \brief What to do about a step whose loss or gradient is not to be trusted.
enum class GuardAction { kIgnore, kStop, kSkip, kRollback };

struct GuardSection {
  GuardAction non_finite = GuardAction::kStop;  ///< never kIgnore
  GuardAction spike = GuardAction::kIgnore;
  double spike_factor = 3.0;      ///< a loss above that many times the median of recent ones
  std::int64_t spike_window = 32; ///< steps whose losses are recent
  std::int64_t most = 10;         ///< skips and rollbacks of one run before it stops after all
};

struct OutputSection {
  std::int64_t every = 1;  ///< steps between lines of the log
  std::vector<std::int64_t> gradients_at;
};

/// \brief A resolved deck: what train, check and the other commands work from.
struct RunConfig {
  RunSection run;
  std::string model_init;  ///< Hugging Face folder or checkpoint to start from; empty: random
  plan::ModelConfig model;
  ParallelSection parallel;
  BatchSection batch;
  OptimizerSection optimizer;
  PrecisionSection precision;
  io::DataConfig data;
  ValidationSection validation;
  CheckpointSection checkpoint;
  GuardSection guard;
  OutputSection output;
  /// The deck with every key written out and overrides applied; running it again is the
  /// same run. Written to the output folder and into each checkpoint.
  std::string resolved_deck;
};

/// \brief Reads, checks and resolves a deck.
/// \param overrides  "section.key=value" from the command line
/// \param ranks  that the mapping has to fill, where they are known
/// \throws InputError PL02xx (deck), PL06xx (model shape), PL08xx (ranks), with file, line, key
/// and expectation
RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides,
                          std::optional<std::int64_t> ranks = {});

}  // namespace pleat::train
