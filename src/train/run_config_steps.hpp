// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The steps from a read deck to a configuration.

#include <cstdint>
#include <optional>
#include <string>

#include "pleat/base/error.hpp"
#include "pleat/io/deck.hpp"
#include "pleat/train/deck_keys.hpp"

namespace pleat::train {

/// \brief Completes the shape of the model, from init, preset or single keys.
/// \throws InputError PL0208, PL0209, PL0212, PL0213, PL06xx
void resolve_model(const io::Deck& deck, const io::DeckKeys& keys, DeckFields& fields);

/// \brief Checks that the keys fit together. \throws InputError PL0206, PL0209, PL06xx,
/// and as check_parallel()
void check_consistency(const io::Deck& deck, const RunConfig& config,
                       std::optional<std::int64_t> ranks);

/// \brief Checks section [parallel] against the model, and the ranks where they are
/// known. \throws InputError PL0209, PL0610, PL0622, PL0623, PL0801, PL0802
void check_parallel(const io::Deck& deck, const RunConfig& config,
                    std::optional<std::int64_t> ranks);

/// \brief Of a run's folder the newest checkpoint by name, so that the resolved deck says which
/// it was; any other path as it is.
std::string find_checkpoint(const std::string& path);

/// \brief The same complaint, with the place in the deck that led to it.
[[noreturn]] void fail_at(const std::string& place, const InputError& error);

}  // namespace pleat::train
