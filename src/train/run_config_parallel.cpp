// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Section [parallel] by itself and against the model.
#include <array>

#include "pleat/train/grid_choice.hpp"
#include "run_config_steps.hpp"

namespace pleat::train {
namespace {

/// Where the deck gives the first key that the message names; the deck where it gives
/// none.
std::string place_of(const io::Deck& deck, const std::string& message) {
  std::string place = deck.path();
  std::size_t first = std::string::npos;
  for (const char* key : {"parallel.pipeline", "parallel.context", "parallel.tensor",
                          "parallel.expert ", "parallel.expert_tensor", "parallel.chunks",
                          "parallel.schedule", "parallel.layout"}) {
    const std::string name = std::string(key).substr(0, std::string(key).find(' '));
    const std::size_t at = message.find(key);
    if (at >= first || !deck.given(name)) continue;
    first = at;
    place = deck.where(name);
  }
  return place;
}

}  // namespace

void check_parallel(const io::Deck& deck, const RunConfig& config,
                    std::optional<std::int64_t> ranks) {
  try {
    if (ranks) {
      grid_shape_of(config, *ranks);
    } else {
      plan::validate_mapping(config.model, batch_of(config), mapping_of(config));
    }
  } catch (const InputError& error) {
    fail_at(place_of(deck, error.what()), error);
  }
}

}  // namespace pleat::train
