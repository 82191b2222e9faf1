// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The rules of docs/grids.md ("What is legal"), written out a second time:
/// nothing is asked of the program, which could otherwise shrink the list that it is
/// tested on.

#include <cstdint>

#include "pleat/train/run_config.hpp"

namespace pleat::test {

/// \brief Whether the model and the batch may be cut by config.parallel over so many
/// ranks. Degrees are at least 1.
bool is_legal(const train::RunConfig& config, std::int64_t ranks);

}  // namespace pleat::test
