// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Both process grids as a drawing.

#include <string>

#include "pleat/comm/grid_shape.hpp"

namespace pleat::cli {

/// \brief An SVG with the same ranks twice: on the left coloured by tensor group of the
/// attention grid, on the right by the groups that exchange tokens in the MoE grid. Each
/// stage of the pipeline has a frame. \throws InputError PL0940 for more than
/// kMostDrawnRanks
std::string grid_svg(const comm::GridShape& grid);

}  // namespace pleat::cli
