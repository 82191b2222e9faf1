// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Section [parallel] by itself and against the model.
#include <array>

#include "pleat/train/grid_choice.hpp"
#include "run_config_steps.hpp"

namespace pleat::train {
namespace {

void check_schedule(const io::Deck& deck, const ParallelSection& parallel) {
  const bool interleaved = parallel.schedule == plan::PipelineSchedule::kInterleaved;
  PLEAT_REQUIRE(interleaved || parallel.chunks == 1, InputError, "PL0209",
                "{}: parallel.chunks = {} needs parallel.schedule = \"interleaved\"\n"
                "HINT: with \"1f1b\" each stage is one chunk.",
                deck.where("parallel.chunks"), parallel.chunks);
  PLEAT_REQUIRE(
      !interleaved || parallel.chunks >= 2, InputError, "PL0209",
      "{}: parallel.schedule = \"interleaved\" needs parallel.chunks of at least "
      "2, found {}\nHINT: a stage with one chunk runs \"1f1b\".",
      deck.where("parallel.chunks"), parallel.chunks);
  PLEAT_REQUIRE(!interleaved || parallel.pipeline >= 2, InputError, "PL0209",
                "{}: parallel.schedule = \"interleaved\", but parallel.pipeline = 1\n"
                "HINT: one stage has nothing to interleave; use \"1f1b\".",
                deck.where("parallel.schedule"));
}

/// Where the deck gives the first key that the message names; the deck where it gives
/// none.
std::string place_of(const io::Deck& deck, const std::string& message) {
  std::string place = deck.path();
  std::size_t first = std::string::npos;
  for (const char* key :
       {"parallel.pipeline", "parallel.context", "parallel.tensor", "parallel.expert ",
        "parallel.expert_tensor", "parallel.chunks", "parallel.layout"}) {
    const std::string name = std::string(key).substr(0, std::string(key).find(' '));
    const std::size_t at = message.find(key);
    if (at >= first || !deck.given(name)) continue;
    first = at;
    place = deck.where(name);
  }
  return place;
}

}  // namespace

void check_parallel(const io::Deck& deck, const RunConfig& config) {
  check_schedule(deck, config.parallel);
  try {
    plan::validate_mapping(config.model, batch_of(config), mapping_of(config));
  } catch (const InputError& error) {
    fail_at(place_of(deck, error.what()), error);
  }
}

}  // namespace pleat::train
