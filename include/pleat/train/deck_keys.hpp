// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Every key that a deck may have: the one place that declares them.

#include <cstdint>
#include <string>
#include <vector>

#include "pleat/io/deck_keys.hpp"
#include "pleat/train/run_config.hpp"

namespace pleat::train {

/// \brief What the keys fill: the configuration, and what only helps to write one.
struct DeckFields {
  DeckFields();

  RunConfig config;
  std::string preset;                      ///< fills the shape, then is forgotten
  std::vector<std::int64_t> dense_layers;  ///< becomes config.model.moe_layer
};

/// \brief Declares all keys, bound to the fields.
io::DeckKeys declare_deck_keys(DeckFields& fields);

/// \brief The text of docs/decks.md.
std::string deck_reference_markdown();
/// \brief Every key as a table for the terminal.
std::string deck_reference();

}  // namespace pleat::train
