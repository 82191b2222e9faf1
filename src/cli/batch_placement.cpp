// SPDX-License-Identifier: Apache-2.0
#include "batch_placement.hpp"

#include <cstdlib>
#include <tuple>

#include "pleat/train/grid_choice.hpp"

namespace pleat::cli {
namespace {

/// Two degrees of [parallel] whose ranks are neighbours, the innermost last.
struct Neighbours {
  const char* outer_name;
  const char* inner_name;
  std::int64_t train::ParallelSection::*outer;
  std::int64_t train::ParallelSection::*inner;
  const char* label;
  const char* traffic;
};

constexpr Neighbours kNeighbours[] = {
    {"expert", "expert_tensor", &train::ParallelSection::expert,
     &train::ParallelSection::expert_tensor, "expert x expert_tensor",
     "the exchange of tokens between experts"},
    {"context", "tensor", &train::ParallelSection::context,
     &train::ParallelSection::tensor, "context x tensor",
     "the exchange of activations and keys"},
};

bool is_legal(const train::RunConfig& config, std::int64_t ranks) {
  try {
    train::grid_shape_of(config, ranks);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

/// The largest product that divides the ranks of a node and is legal, near to what the
/// deck has; empty when there is none.
std::string nearest_that_fits(const train::RunConfig& config, const Neighbours& pair,
                              std::int64_t nodes, std::int64_t ranks_per_node) {
  const std::int64_t inner_now = config.parallel.*pair.inner;
  std::string best;
  std::tuple<std::int64_t, std::int64_t> best_score{0, 0};
  for (std::int64_t outer = 1; outer <= ranks_per_node; ++outer) {
    for (std::int64_t inner = 1; outer * inner <= ranks_per_node; ++inner) {
      if (ranks_per_node % (outer * inner) != 0) continue;
      const std::tuple score{outer * inner, -std::abs(inner - inner_now)};
      if (!best.empty() && score <= best_score) continue;
      train::RunConfig other = config;
      other.parallel.*pair.outer = outer;
      other.parallel.*pair.inner = inner;
      if (!is_legal(other, nodes * ranks_per_node)) continue;
      best_score = score;
      best = fmt::format("parallel.{}={} parallel.{}={}", pair.outer_name, outer,
                         pair.inner_name, inner);
    }
  }
  return best;
}

}  // namespace

Placement place_on_nodes(const train::RunConfig& config, std::int64_t nodes,
                         std::int64_t ranks_per_node) {
  train::grid_shape_of(config, nodes * ranks_per_node);
  Placement placement;
  for (const Neighbours& pair : kNeighbours) {
    const std::int64_t size = config.parallel.*pair.outer * config.parallel.*pair.inner;
    if (nodes == 1 || ranks_per_node % size == 0) {
      placement.notes.push_back(fmt::format("{} = {}: inside a node of {} ranks",
                                            pair.label, size, ranks_per_node));
      continue;
    }
    const std::string nearest = nearest_that_fits(config, pair, nodes, ranks_per_node);
    placement.warnings.push_back(fmt::format(
        "{} = {} does not fit into a node of {} ranks: {} goes through the network{}",
        pair.label, size, ranks_per_node, pair.traffic,
        nearest.empty() ? "" : "; nearest that fits: " + nearest));
  }
  return placement;
}

}  // namespace pleat::cli
