// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Command-line overrides "section.key=value".
#include <algorithm>
#include <optional>

#include "deck_tree.hpp"
#include "pleat/base/error.hpp"

namespace pleat::io {
namespace {

bool is_key_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         c == '_' || c == '-' || c == '.';
}

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

/// The value as one TOML value; nothing when it is not one.
std::optional<DeckNode> parse_value(const std::string& value) {
  if (value.find('\n') != std::string::npos) return std::nullopt;
  try {
    DeckNode table = parse_toml("value = " + value, "override");
    if (table.children.size() == 1 && table.children[0].key == "value") {
      return std::move(table.children[0]);
    }
  } catch (const InputError&) {
    // A bare word; whether it may stand there is for the caller to say.
  }
  return std::nullopt;
}

DeckNode bare_word(const std::string& value) {
  DeckNode node;
  node.kind = DeckNode::Kind::kText;
  node.text = value;
  return node;
}

/// A text of valid UTF-8 passes through the parser unchanged.
bool is_utf8(const std::string& text) {
  try {
    parse_toml("# " + text, "override");
    return true;
  } catch (const InputError&) {
    return false;
  }
}

[[noreturn]] void fail_malformed(const std::string& text, const char* what) {
  PLEAT_FAIL(
      InputError, "PL0210",
      "override '{}': {}\n"
      "HINT: write section.key=value, for example optimizer.lr=1e-3; quote lists for "
      "the shell: 'data.path=[\"a\", \"b\"]'.",
      printable(text), what);
}

}  // namespace

DeckNode parse_override(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) fail_malformed(text, "there is no '='");
  const std::string name = trimmed(text.substr(0, equals));
  const std::string value = trimmed(text.substr(equals + 1));
  const auto parts = 1 + std::count(name.begin(), name.end(), '.');
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_key_character) ||
      parts > 8)
    fail_malformed(text, "what stands before '=' is not a key");
  if (std::any_of(value.begin(), value.end(), [](unsigned char c) { return c < 0x20; }))
    fail_malformed(text, "the value has control characters");

  std::optional<DeckNode> node = parse_value(value);
  if (!node) {
    const char first = value.empty() ? ' ' : value.front();
    if (first == '"' || first == '\'' || first == '[' || first == '{')
      fail_malformed(text, "the value is not valid TOML");
    if (!is_utf8(value)) fail_malformed("?", "the value is not valid UTF-8");
    node = bare_word(value);
  }
  if (node->kind != DeckNode::Kind::kText) node->text = value;

  // Wrap it into tables from the last part of the name to the first.
  DeckNode tree = std::move(*node);
  std::string rest = name;
  while (true) {
    const auto dot = rest.rfind('.');
    tree.key = rest.substr(dot == std::string::npos ? 0 : dot + 1);
    DeckNode table;
    table.children.push_back(std::move(tree));
    tree = std::move(table);
    if (dot == std::string::npos) return tree;
    rest.resize(dot);
  }
}

}  // namespace pleat::io
