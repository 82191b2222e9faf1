// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A training run from its deck to its last checkpoint.

#include "pleat/base/error.hpp"
#include "pleat/base/log.hpp"
#include "pleat/base/runtime.hpp"
#include "pleat/train/run_config.hpp"

namespace pleat::train {

/// \brief Trains what the configuration says and writes its run folder. All inputs are opened
/// and checked before anything is written. Collective over the runtime's ranks.
/// \throws InputError for data, models and folders that cannot be used; NumericalError PL0710
///   with step and layer; IoError
ExitCode train(const RunConfig& config, const Runtime& runtime, Log& log);

}  // namespace pleat::train
