// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief A parsed deck before anything is known about its keys; hides the TOML library.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pleat::io {

struct DeckNode {
  enum class Kind { kBoolean, kInteger, kReal, kText, kList, kTable, kDate };

  std::string key;  ///< last part of the name; empty in a list
  std::int64_t line = 0;
  Kind kind = Kind::kTable;
  bool boolean = false;
  std::int64_t integer = 0;
  double real = 0.0;
  std::string text;  ///< of a text; of another scalar of an override, as it was typed
  std::vector<DeckNode> children;  ///< of a list, in order; of a table, by line
};

/// \brief The text of a deck. \throws InputError PL0201: missing, unreadable, too large
std::string read_deck_file(const std::string& path);

/// \brief Parses TOML. \throws InputError PL0202 not TOML, PL0204 a key given twice
/// \param source  names the text in messages
DeckNode parse_toml(std::string_view text, const std::string& source);

/// \brief "section.key=value" as a table of tables: a TOML value, or a bare word as text.
/// \throws InputError PL0210 malformed
DeckNode parse_override(const std::string& text);

/// \brief For messages: without control characters and not too long.
std::string printable(std::string_view text, std::size_t most_bytes = 60);
/// \brief The same for paths, which are shown in full.
inline std::string printable_path(std::string_view path) { return printable(path, 4096); }

}  // namespace pleat::io
