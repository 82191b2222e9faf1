// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Both process grids in text: what `pleat map` and `pleat check` print.

#include <cstdint>
#include <string>
#include <vector>

#include "pleat/comm/grid_shape.hpp"
#include "pleat/train/run_config.hpp"

namespace pleat::cli {

/// \brief Ranks that are drawn one by one; larger grids are described.
inline constexpr std::int64_t kMostDrawnRanks = 64;

/// \brief "0, 8, ..., 56 (8 ranks)"; up to four ranks are written out.
std::string rank_list(const std::vector<std::int64_t>& ranks);

/// \brief The axes of both grids with their degrees.
std::string grid_summary(const comm::GridShape& grid);

/// \brief Each grid as a table of its ranks: a block for each pipeline stage, brackets
/// around the fastest axis. For at most kMostDrawnRanks ranks.
std::string grid_picture(const comm::GridShape& grid);

/// \brief The layers of each stage, and how many micro-batches it holds at once.
std::string stage_report(const train::RunConfig& config, const comm::GridShape& grid);

/// \brief A rank's coordinates, what it holds, and whom it talks to about what.
std::string rank_report(const train::RunConfig& config, const comm::GridShape& grid,
                        std::int64_t rank);

}  // namespace pleat::cli
