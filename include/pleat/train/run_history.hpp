// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The jobs that had a part in a run, as its checkpoints tell.

#include <cstdint>
#include <string>

#include "pleat/comm/grid_shape.hpp"

namespace pleat::train {

/// \brief The line of this job: "2026-03-01T08:15:02Z from step 0 on 8 ranks of host nid001
/// (Slurm job 4711), pipeline 1 ..., Pleat 0.1.0 ...". Times in UTC.
std::string history_line(std::int64_t first_step, const comm::GridShape& shape);

/// \brief The history of the checkpoint that a job continues, and its own line.
std::string extended_history(const std::string& before, const std::string& line);

}  // namespace pleat::train
