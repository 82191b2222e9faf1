// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A model in tables for the terminal: shapes, counts, FLOPs and memory.

#include <string>
#include <vector>

#include "pleat/plan/memory.hpp"
#include "pleat/plan/model_config.hpp"

namespace pleat::cli {

/// \brief Every kind of tensor with its shape and number, then total and active
/// parameters.
std::string shape_report(const plan::ModelConfig& config);

/// \brief Training FLOPs of a token by both rules.
std::string flop_report(const plan::ModelConfig& config, std::int64_t sequence);

/// \brief Bytes of the fullest rank by item, the totals of all recompute modes, and with
/// several stages the items of each.
/// \param stages  one request for each stage of the pipeline
std::string memory_report(const plan::ModelConfig& config,
                          const std::vector<plan::MemoryRequest>& stages);

}  // namespace pleat::cli
