// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief What changed in deck and data since a checkpoint was written, and whether the run may
/// go on.

#include <string>
#include <vector>

#include "pleat/base/log.hpp"
#include "pleat/io/deck_keys.hpp"

namespace pleat::train {

/// \brief A key with another value than before; texts as in the resolved deck.
struct DeckChange {
  std::string key;
  std::string before;
  std::string now;
  io::Restart restart = io::Restart::kFree;
};

/// \brief Compares two resolved decks, key by key, in the order of declaration. A key that one
/// of them lacks (written by another version) has its default there; keys that this program
/// does not know are left out. An empty deck (converted model) has no changes.
std::vector<DeckChange> deck_changes(const std::string& before, const std::string& now);

/// \brief Refuses with all differences listed. \param checkpoint  its path, for the message
/// \throws InputError PL0732
void require_continuable(const std::string& checkpoint, const std::vector<DeckChange>& changes);
/// \brief The same, and says what else changed: free keys in one line, warnings one by one.
void require_continuable(const std::string& checkpoint, const std::vector<DeckChange>& changes,
                         Log& log);

/// \brief Warns where the data is not that of the checkpoint, with the first source that differs.
/// \param before, now  as TokenData::identity() makes them; empty: not known
void warn_of_changed_data(const std::string& before, const std::string& now, Log& log);

}  // namespace pleat::train
