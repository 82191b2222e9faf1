// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The values of decks that other versions of the program wrote.
#include "deck_check.hpp"
#include "deck_tree.hpp"
#include "pleat/base/error.hpp"
#include "pleat/io/deck.hpp"

namespace pleat::io {
namespace {

/// A word or a range may have come or gone with a version: such a value equals no other.
DeckValue value_or_text(const DeckEntry& entry, const DeckNode& node,
                        const std::string& source) {
  try {
    return check_value(entry, node, source);
  } catch (const InputError&) {
    return node.kind == DeckNode::Kind::kText ? node.text : found_text(node);
  }
}

void collect(const DeckNode& table, const std::string& prefix, const std::string& source,
             const DeckKeys& keys, DeckValues& values) {
  for (const DeckNode& node : table.children) {
    const std::string name = prefix + node.key;
    if (const DeckEntry* entry = keys.find(name)) {
      values[name] = value_or_text(*entry, node, source);
    } else if (node.kind == DeckNode::Kind::kTable) {
      collect(node, name + ".", source, keys, values);
    }
  }
}

}  // namespace

DeckValues read_deck_values(std::string_view text, const std::string& source,
                            const DeckKeys& keys) {
  DeckValues values;
  collect(parse_toml(text, source), "", source, keys, values);
  return values;
}

}  // namespace pleat::io
