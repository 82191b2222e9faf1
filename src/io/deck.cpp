// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/deck.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/ranges.h>

#include "deck_check.hpp"
#include "deck_tree.hpp"
#include "pleat/base/error.hpp"

namespace pleat::io {
namespace {

/// A value with its full name: what is left once sections and groups are unfolded.
struct Leaf {
  std::string name;
  const DeckNode* node;
};

void require_table(const DeckKeys& keys, const std::string& name, const DeckNode& node,
                   const std::string& where) {
  if (node.kind == DeckNode::Kind::kTable) return;
  std::vector<std::string> members;
  for (const DeckEntry& entry : keys.entries()) {
    if (entry.key.name.starts_with(name + "."))
      members.push_back(entry.key.name.substr(name.size() + 1));
  }
  PLEAT_FAIL(
      InputError, "PL0205",
      "{}: {}: found a value, expected a group of keys ({})\nHINT: write {}.{} = ...",
      where, name, fmt::join(members, ", "), name, members.front());
}

/// Unfolds sections and groups; names each place by `where(line)`.
class Unfold {
 public:
  Unfold(const DeckKeys& keys, std::string source, bool has_lines)
      : keys_(keys), source_(std::move(source)), has_lines_(has_lines) {}

  std::string where(const DeckNode& node) const {
    return has_lines_ ? fmt::format("{}:{}", source_, node.line) : source_;
  }

  std::vector<Leaf> leaves(const DeckNode& root) const {
    std::vector<Leaf> found;
    for (const DeckNode& node : root.children) {
      const bool is_table = node.kind == DeckNode::Kind::kTable;
      if (!keys_.has_section(node.key))
        fail_unknown(keys_, node.key, is_table, where(node));
      require_table(keys_, node.key, node, where(node));
      collect(node, node.key, found);
    }
    std::stable_sort(found.begin(), found.end(), [](const Leaf& a, const Leaf& b) {
      return a.node->line < b.node->line;
    });
    return found;
  }

 private:
  void collect(const DeckNode& table, const std::string& prefix,
               std::vector<Leaf>& found) const {
    for (const DeckNode& node : table.children) {
      const std::string name = prefix + "." + node.key;
      if (node.key.find('.') == std::string::npos && keys_.is_group(name)) {
        require_table(keys_, name, node, where(node));
        collect(node, name, found);
      } else {
        found.push_back({name, &node});
      }
    }
  }

  const DeckKeys& keys_;
  std::string source_;
  bool has_lines_;
};

bool is_input(const std::filesystem::path& path) {
  std::error_code error;
  // A Megatron data set is named by what its two files have in common.
  return std::filesystem::exists(path, error) ||
         std::filesystem::exists(path.string() + ".bin", error);
}

}  // namespace

Deck::Deck(const std::string& path, const std::vector<std::string>& overrides,
           const DeckKeys& keys)
    : path_(path) {
  const auto take = [&](const DeckNode& root, const Unfold& unfold) {
    for (const Leaf& leaf : unfold.leaves(root)) {
      const std::string where = unfold.where(*leaf.node);
      const DeckEntry* entry = keys.find(leaf.name);
      if (entry == nullptr) fail_unknown(keys, leaf.name, false, where);
      given_[leaf.name] = {check_value(*entry, *leaf.node, where), where};
    }
  };
  const std::string source = printable_path(path);
  take(parse_toml(read_deck_file(path), source), Unfold(keys, source, true));
  for (const std::string& text : overrides) {
    const std::string name = fmt::format("override '{}'", printable(text));
    take(parse_override(text), Unfold(keys, name, false));
  }
  for (const DeckEntry& entry : keys.entries()) {
    PLEAT_REQUIRE(!entry.key.required || given(entry.key.name), InputError, "PL0208",
                  "{}: {}: missing, expected {}\nHINT: it has no default; {}", source,
                  entry.key.name, expected_text(entry), entry.key.meaning);
  }
}

void Deck::store(const DeckKeys& keys) const {
  for (const auto& [name, given] : given_) keys.find(name)->store(given.value);
}

bool Deck::given(std::string_view name) const {
  return given_.find(name) != given_.end();
}

const DeckValue& Deck::value(std::string_view name) const {
  const auto found = given_.find(name);
  PLEAT_ASSERT(found != given_.end(), "the deck does not give '{}'", name);
  return found->second.value;
}

std::string Deck::where(std::string_view name) const {
  const auto found = given_.find(name);
  return found == given_.end() ? printable_path(path_) : found->second.where;
}

std::string Deck::find_path(const std::string& text) const {
  const std::filesystem::path path(text);
  if (text.empty() || path.is_absolute()) return text;
  const auto beside_deck = std::filesystem::path(path_).parent_path() / path;
  for (const auto& candidate : {beside_deck, path}) {
    std::error_code error;
    if (is_input(candidate))
      return std::filesystem::absolute(candidate, error).lexically_normal().string();
  }
  return text;
}

}  // namespace pleat::io
