// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The steps from a read deck to a configuration.

#include "pleat/io/deck.hpp"
#include "pleat/train/deck_keys.hpp"

namespace pleat::train {

/// \brief Completes the shape of the model, from init, preset or single keys.
/// \throws InputError PL0208, PL0209, PL0212, PL0213, PL06xx
void resolve_model(const io::Deck& deck, const io::DeckKeys& keys, DeckFields& fields);

/// \brief Checks that the keys fit together. \throws InputError PL0206, PL0209, PL0211
void check_consistency(const io::Deck& deck, const RunConfig& config);

}  // namespace pleat::train
