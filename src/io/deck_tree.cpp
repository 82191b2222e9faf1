// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief The only file that knows the TOML library.
#include "deck_tree.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <toml++/toml.h>

#include "pleat/base/error.hpp"

namespace pleat::io {
namespace {

// A deck is written by hand; what is larger is some other file.
constexpr std::size_t kLargestDeck = 1 << 20;
// The TOML library bounds nested values, but builds dotted keys of any length, whose
// destruction would then exhaust the stack.
constexpr int kMostDots = 48;
constexpr int kDeepest = 32;

void refuse_long_dotted_keys(std::string_view text, const std::string& source) {
  int dots = 0;
  std::int64_t line = 1;
  for (const char c : text) {
    if (c == '\n') ++line;
    if (std::string_view("=,{}[]\n").find(c) != std::string_view::npos) dots = 0;
    if (c == '.') ++dots;
    PLEAT_REQUIRE(dots <= kMostDots, InputError, "PL0202",
                  "{}:{}: too many dots for a name\n"
                  "HINT: a key is section.key or section.group.key.",
                  source, line);
  }
}

DeckNode convert(const toml::node& node, std::string key, int depth,
                 const std::string& source);

DeckNode convert_table(const toml::table& table, DeckNode result, int depth,
                       const std::string& source) {
  for (const auto& [key, child] : table) {
    DeckNode node = convert(child, std::string(key.str()), depth + 1, source);
    node.line = key.source().begin.line;
    result.children.push_back(std::move(node));
  }
  std::stable_sort(result.children.begin(), result.children.end(),
                   [](const DeckNode& a, const DeckNode& b) { return a.line < b.line; });
  return result;
}

DeckNode convert(const toml::node& node, std::string key, int depth,
                 const std::string& source) {
  DeckNode result;
  result.key = std::move(key);
  result.line = node.source().begin.line;
  PLEAT_REQUIRE(depth <= kDeepest, InputError, "PL0202", "{}:{}: nested too deeply",
                source, result.line);
  if (const auto* table = node.as_table()) {
    result.kind = DeckNode::Kind::kTable;
    return convert_table(*table, std::move(result), depth, source);
  }
  if (const auto* list = node.as_array()) {
    result.kind = DeckNode::Kind::kList;
    for (const auto& child : *list)
      result.children.push_back(convert(child, "", depth + 1, source));
  } else if (const auto boolean = node.as_boolean()) {
    result.kind = DeckNode::Kind::kBoolean;
    result.boolean = boolean->get();
  } else if (const auto integer = node.as_integer()) {
    result.kind = DeckNode::Kind::kInteger;
    result.integer = integer->get();
  } else if (const auto real = node.as_floating_point()) {
    result.kind = DeckNode::Kind::kReal;
    result.real = real->get();
  } else if (const auto text = node.as_string()) {
    result.kind = DeckNode::Kind::kText;
    result.text = text->get();
  } else {
    result.kind = DeckNode::Kind::kDate;
  }
  return result;
}

/// The last "[section]" before a line, with a dot; the library names a repeated key
/// without.
std::string section_before(std::string_view text, std::int64_t line) {
  std::string section;
  while (line-- > 1 && !text.empty()) {
    const std::string_view row = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), row.size() + 1));
    const auto begin = row.find_first_not_of(" \t");
    const auto end = row.find(']');
    if (begin == row.npos || row[begin] != '[' || end == row.npos) continue;
    section = std::string(row.substr(begin + 1, end - begin - 1)) + ".";
  }
  return section;
}

[[noreturn]] void fail_to_parse(const toml::parse_error& error, std::string_view text,
                                const std::string& source) {
  const std::string_view description = error.description();
  const auto line = static_cast<std::int64_t>(error.source().begin.line);
  if (description.find("cannot redefine") == description.npos) {
    PLEAT_FAIL(
        InputError, "PL0202",
        "{}:{}: not valid TOML: {}\n"
        "HINT: a line is key = value; texts stand in \"quotes\", sections in [brackets].",
        source, line, printable(description, 200));
  }
  const auto begin = description.find('\'');
  const auto end = description.find('\'', begin + 1);
  std::string name = "the key of this line";
  if (end != description.npos) {
    const bool header = description.find("table header") != description.npos;
    name = (header ? "" : section_before(text, line));
    name += description.substr(begin + 1, end - begin - 1);
  }
  PLEAT_FAIL(InputError, "PL0204",
             "{}:{}: {}: given a second time\n"
             "HINT: each key and each [section] may stand in a deck once.",
             source, line, printable(name));
}

}  // namespace

std::string printable(std::string_view text, std::size_t most_bytes) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    // Not within a character of several bytes.
    if (result.size() >= most_bytes && (byte & 0xC0) != 0x80) return result + "...";
    if (byte < 0x20 || byte == 0x7F) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result;
}

std::string read_deck_file(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  PLEAT_REQUIRE(status.type() != std::filesystem::file_type::none, InputError, "PL0201",
                "cannot read the deck '{}': {}\n"
                "HINT: check the path and the permissions of the folders that lead there.",
                printable_path(path), error.message());
  PLEAT_REQUIRE(
      std::filesystem::exists(status), InputError, "PL0201",
      "there is no deck '{}'\nHINT: the path is relative to the folder in which the "
      "command runs.",
      printable_path(path));
  PLEAT_REQUIRE(!std::filesystem::is_directory(status), InputError, "PL0201",
                "'{}' is a folder, expected a deck (a TOML file)", printable_path(path));
  std::ifstream file(path, std::ios::binary);
  std::string text(kLargestDeck + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  PLEAT_REQUIRE(!file.bad() && (file || file.eof()), InputError, "PL0201",
                "cannot read the deck '{}'\nHINT: check its permissions.",
                printable_path(path));
  text.resize(static_cast<std::size_t>(file.gcount()));
  PLEAT_REQUIRE(text.size() <= kLargestDeck, InputError, "PL0201",
                "'{}' is larger than {} bytes: not a deck", printable_path(path),
                kLargestDeck);
  return text;
}

DeckNode parse_toml(std::string_view text, const std::string& source) {
  refuse_long_dotted_keys(text, source);
  try {
    return convert(toml::parse(text), "", 0, source);
  } catch (const toml::parse_error& error) {
    fail_to_parse(error, text, source);
  }
}

}  // namespace pleat::io
