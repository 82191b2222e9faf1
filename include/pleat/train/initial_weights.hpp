// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The weights that a run starts from.

#include <string>

#include "pleat/train/engine.hpp"

namespace pleat::train {

/// \brief Random ones, or those that model.init names. Collective over the engine's grid.
/// \return the text of the config.json that they came with, or nothing
/// \throws InputError what reading the files throws
template <class T>
std::string load_initial_weights(const RunConfig& config, Engine<T>& engine);

}  // namespace pleat::train
