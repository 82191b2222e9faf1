// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The learning rate of each step.

#include <cstdint>

#include "pleat/train/run_config.hpp"

namespace pleat::train {

/// \brief The rate that the update of `step` uses: a linear rise to `lr` over the first
/// `warmup` steps, then the schedule's decay, which reaches `min_lr` at the last step.
/// \param steps  of the whole run; later steps keep the rate of the last one
/// \param step   counted from 1
double learning_rate(const OptimizerSection& optimizer, std::int64_t steps,
                     std::int64_t step);

}  // namespace pleat::train
