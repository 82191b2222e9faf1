// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The facts about checkpoints as lines for the terminal, and as JSON for scripts.

#include <map>
#include <string>
#include <utility>

#include "inspect_facts.hpp"
#include "inspect_model.hpp"

namespace pleat::cli {

/// \brief "12 elements in 2 tensors of F32, ...".
class Totals {
 public:
  void add(io::ElementType type, const tensor::Shape& shape);
  std::string text() const;

 private:
  std::map<io::ElementType, std::pair<std::int64_t, std::int64_t>> by_type_;
};

std::string shape_text(const tensor::Shape& shape);
std::string statistics_text(const Statistics& statistics);
/// \brief The sizes of a model in one line.
std::string model_text(const plan::ModelConfig& model);

void print_checkpoint(const CheckpointFacts& facts, const InspectOptions& options);
void print_run(const RunFacts& facts, const InspectOptions& options);

/// \brief Objects with a member "kind": "checkpoint" or "run" (docs/checkpoints.md).
std::string checkpoint_json(const CheckpointFacts& facts);
std::string run_json(const RunFacts& facts);

}  // namespace pleat::cli
