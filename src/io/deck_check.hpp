// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief From parsed text to the value of a declared key.

#include <string>

#include "deck_tree.hpp"
#include "pleat/io/deck_keys.hpp"

namespace pleat::io {

/// \brief Checks type, range and choices.
/// \param where  "deck.toml:12" or the override
/// \throws InputError PL0205, PL0206, PL0207
DeckValue check_value(const DeckEntry& entry, const DeckNode& node,
                      const std::string& where);

/// \brief Explains a name that is not declared. \throws InputError PL0203, always
[[noreturn]] void fail_unknown(const DeckKeys& keys, const std::string& name,
                               bool is_table, const std::string& where);

/// \brief A value as a message shows it: "12", "the text "x"", "a list".
std::string found_text(const DeckNode& node);

/// \brief "an integer, at least 1": what a key accepts.
std::string expected_text(const DeckEntry& entry);

}  // namespace pleat::io
