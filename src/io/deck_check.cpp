// SPDX-License-Identifier: Apache-2.0
#include "deck_check.hpp"

#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/ranges.h>

#include "pleat/base/error.hpp"
#include "pleat/base/spelling.hpp"
#include "pleat/io/deck.hpp"

namespace pleat::io {
namespace {

using Kind = DeckNode::Kind;

std::string type_text(DeckType type) {
  switch (type) {
    case DeckType::kBoolean:
      return "true or false";
    case DeckType::kInteger:
      return "an integer";
    case DeckType::kReal:
      return "a number";
    case DeckType::kText:
      return "a text in quotes";
    case DeckType::kIntegers:
      return "a list of integers";
    case DeckType::kReals:
      return "a list of numbers";
    case DeckType::kTexts:
      return "a text or a list of texts";
  }
  return "";
}

/// A text that would be a value of the type if it were not one.
bool is_quoted_value(DeckType type, const DeckNode& node) {
  const bool wants_text = type == DeckType::kText || type == DeckType::kTexts;
  if (node.kind != Kind::kText || wants_text) return false;
  if (type == DeckType::kBoolean) return node.text == "true" || node.text == "false";
  // A number that is a text without quotes is one that TOML cannot hold.
  double number = 0.0;
  const char* const end = node.text.data() + node.text.size();
  const auto [stop, error] = std::from_chars(node.text.data(), end, number);
  return error == std::errc() && stop == end && std::abs(number) < 1.0e15;
}

/// What is often meant by a value of the wrong type.
std::string type_hint(const DeckEntry& entry, const DeckNode& node) {
  const bool whole = node.kind == Kind::kReal && std::floor(node.real) == node.real &&
                     std::abs(node.real) < 1.0e15;
  if (entry.type == DeckType::kInteger && whole)
    return fmt::format("\nHINT: write {}.", static_cast<std::int64_t>(node.real));
  return is_quoted_value(entry.type, node) ? "\nHINT: write it without quotes." : "";
}

/// One check of one value; carries what the messages need.
struct Check {
  const DeckEntry& entry;
  const std::string& where;

  [[noreturn]] void fail(const char* id, const std::string& found,
                         const std::string& hint) const {
    PLEAT_FAIL(InputError, id, "{}: {}: found {}, expected {}{}", where, entry.key.name,
               found, expected_text(entry), hint);
  }
  [[noreturn]] void fail_type(const DeckNode& node) const {
    fail("PL0205", found_text(node), type_hint(entry, node));
  }
  void require_in_range(double value, const DeckNode& node) const {
    if (!std::isfinite(value) || !entry.key.range.contains(value))
      fail("PL0206", found_text(node), "");
  }

  bool boolean(const DeckNode& node) const {
    if (node.kind != Kind::kBoolean) fail_type(node);
    return node.boolean;
  }
  std::int64_t integer(const DeckNode& node) const {
    if (node.kind != Kind::kInteger) fail_type(node);
    require_in_range(static_cast<double>(node.integer), node);
    return node.integer;
  }
  double real(const DeckNode& node) const {
    if (node.kind != Kind::kInteger && node.kind != Kind::kReal) fail_type(node);
    const double value =
        node.kind == Kind::kReal ? node.real : static_cast<double>(node.integer);
    require_in_range(value, node);
    return value + 0.0;  // no negative zero
  }
  std::string text(const DeckNode& node) const {
    // On the command line `run.name=2024` is as good as a text in quotes.
    const bool typed =
        node.kind != Kind::kList && node.kind != Kind::kTable && !node.text.empty();
    if (node.kind != Kind::kText && !typed) fail_type(node);
    for (const unsigned char c : node.text) {
      if (c < 0x20 || c == 0x7F)
        fail("PL0206", found_text(node), "\nHINT: control characters are not allowed.");
    }
    if (!entry.choices.empty()) require_choice(node);
    return node.text;
  }
  void require_choice(const DeckNode& node) const {
    // Writing out an empty default means the same as leaving the key out.
    if (node.text.empty() && entry.default_value == DeckValue(std::string())) return;
    for (const std::string& choice : entry.choices) {
      if (choice == node.text) return;
    }
    const std::string nearest = node.text.size() > 64
                                    ? std::string()
                                    : nearest_spelling(node.text, entry.choices);
    fail("PL0207", found_text(node),
         nearest.empty() ? "" : fmt::format("\nHINT: did you mean \"{}\"?", nearest));
  }

  /// A list, or a single value that stands for a list of one.
  template <class T, class Element>
  std::vector<T> list(const DeckNode& node, Element element) const {
    if (node.kind != Kind::kList) return {element(node)};
    std::vector<T> values;
    for (const DeckNode& child : node.children) values.push_back(element(child));
    return values;
  }
};

}  // namespace

std::string found_text(const DeckNode& node) {
  switch (node.kind) {
    case Kind::kBoolean:
      return node.boolean ? "true" : "false";
    case Kind::kInteger:
      return fmt::format("{}", node.integer);
    case Kind::kReal:
      return deck_text(node.real);
    case Kind::kText:
      return fmt::format("the text \"{}\"", printable(node.text));
    case Kind::kList:
      return "a list";
    case Kind::kTable:
      return "a table of keys";
    case Kind::kDate:
      return "a date or time";
  }
  return "";
}

std::string expected_text(const DeckEntry& entry) {
  if (!entry.choices.empty())
    return fmt::format("one of \"{}\"", fmt::join(entry.choices, "\", \""));
  const std::string range = entry.key.range.text();
  return type_text(entry.type) + (range.empty() ? "" : ", " + range);
}

DeckValue check_value(const DeckEntry& entry, const DeckNode& node,
                      const std::string& where) {
  const Check check{entry, where};
  switch (entry.type) {
    case DeckType::kBoolean:
      return check.boolean(node);
    case DeckType::kInteger:
      return check.integer(node);
    case DeckType::kReal:
      return check.real(node);
    case DeckType::kText:
      return check.text(node);
    case DeckType::kIntegers:
      return check.list<std::int64_t>(node,
                                      [&](const auto& n) { return check.integer(n); });
    case DeckType::kReals:
      return check.list<double>(node, [&](const auto& n) { return check.real(n); });
    case DeckType::kTexts:
      return check.list<std::string>(node, [&](const auto& n) { return check.text(n); });
  }
  PLEAT_FAIL(InternalError, "PL0100", "key '{}' has no type", entry.key.name);
}

}  // namespace pleat::io
