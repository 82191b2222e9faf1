// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief Input decks: TOML files whose every key is declared (deck_keys.hpp).

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "pleat/io/deck_keys.hpp"

namespace pleat::io {

/// \brief What the user gave, in a deck and on the command line: checked values and where
/// each one stands.
class Deck {
 public:
  /// \brief Reads a deck and checks each value against the declarations.
  /// \param overrides  "section.key=value" with a TOML value or a bare word; the last one
  /// of
  ///                   a key counts
  /// \throws InputError PL0201 unreadable file, PL0202 not TOML, PL0203 unknown key,
  /// PL0204
  ///   duplicate key, PL0205 wrong type, PL0206 out of range, PL0207 not an allowed
  ///   value, PL0208 required key missing, PL0210 malformed override
  Deck(const std::string& path, const std::vector<std::string>& overrides,
       const DeckKeys& keys);

  /// \brief Fills the field of every given key; the others keep what they have.
  void store(const DeckKeys& keys) const;

  const std::string& path() const { return path_; }
  bool given(std::string_view name) const;
  /// \brief The given value of a key. \throws InternalError when it is not given
  const DeckValue& value(std::string_view name) const;
  /// \brief "deck.toml:12", "override 'run.steps=3'", or the deck's path for a key that
  /// is not given.
  std::string where(std::string_view name) const;
  /// \brief Finds an input file that the deck names: relative to the folder of the deck
  /// if it exists there, else to the working directory; the path unchanged if in neither.
  /// \returns an absolute path when found
  std::string find_path(const std::string& text) const;

 private:
  struct Given {
    DeckValue value;
    std::string where;
  };

  std::string path_;
  std::map<std::string, Given, std::less<>> given_;
};

using DeckValues = std::map<std::string, DeckValue, std::less<>>;

/// \brief What the text of a deck gives for the declared keys, to be compared with another:
/// nothing is required, keys that are not declared are left out, and what a key does not
/// accept stands as the text that was found. \param source  names the text in messages
/// \throws InputError PL0202, PL0204
DeckValues read_deck_values(std::string_view text, const std::string& source,
                            const DeckKeys& keys);

/// \brief A deck with every key written out, from the present values of the fields.
/// Reading it again gives the same values, and writing those the same bytes.
std::string write_deck(const DeckKeys& keys);

/// \brief A value as it stands in a deck.
std::string deck_text(const DeckValue& value);

/// \brief Every key as a table for the terminal.
std::string describe_keys(const DeckKeys& keys);

/// \brief Every key as Markdown tables, one for each section.
std::string describe_keys_markdown(const DeckKeys& keys);

}  // namespace pleat::io
