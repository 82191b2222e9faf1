// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Whether the groups that talk most stay inside a node.

#include <cstdint>
#include <string>
#include <vector>

#include "pleat/train/run_config.hpp"

namespace pleat::cli {

/// \brief Ranks fill one node after the other, and tensor and expert are the innermost
/// axes: EP x ETP and CP x TP neighbours stay inside a node when their number divides its
/// ranks.
struct Placement {
  std::vector<std::string> notes;     ///< one for each product that fits
  std::vector<std::string> warnings;  ///< one for each that does not; names what would
};

/// \brief Also checks the mapping itself.
/// \throws InputError as train::grid_shape_of: PL0801, PL0802, PL0610, PL0622, PL0623
Placement place_on_nodes(const train::RunConfig& config, std::int64_t nodes,
                         std::int64_t ranks_per_node);

}  // namespace pleat::cli
