// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Decks and their documentation as text.
#include <string_view>
#include <type_traits>

#include <fmt/ranges.h>

#include "deck_check.hpp"
#include "pleat/io/deck.hpp"

namespace pleat::io {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

/// The shortest text that reads back as the same number, and as a number with a fraction.
std::string real_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string element_text(std::int64_t value) { return fmt::format("{}", value); }
std::string element_text(double value) { return real_text(value); }
std::string element_text(const std::string& value) { return quoted(value); }

template <class T>
std::string list_text(const std::vector<T>& values) {
  std::vector<std::string> texts;
  for (const T& value : values) texts.push_back(element_text(value));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::string default_text(const DeckEntry& entry) {
  if (entry.key.required) return "required";
  return entry.key.fallback.empty() ? deck_text(entry.default_value) : entry.key.fallback;
}

std::string meaning_text(const DeckEntry& entry) {
  if (entry.key.unit.empty()) return entry.key.meaning;
  return fmt::format("{} [{}]", entry.key.meaning, entry.key.unit);
}

/// "one of ..." is clear enough without in a table.
std::string allowed_text(const DeckEntry& entry) {
  return entry.choices.empty()
             ? expected_text(entry)
             : fmt::format("\"{}\"", fmt::join(entry.choices, "\", \""));
}

/// A cell of a Markdown table.
std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

}  // namespace

std::string deck_text(const DeckValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>) {
          return v ? "true" : "false";
        } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
          return element_text(v);
        } else {
          return list_text(v);
        }
      },
      value);
}

std::string write_deck(const DeckKeys& keys) {
  std::string text;
  for (const DeckSection& section : keys.sections()) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section.name);
    for (const DeckEntry& entry : keys.entries()) {
      if (entry.section() != section.name) continue;
      text +=
          fmt::format("{} = {}\n", entry.name_in_section(), deck_text(entry.current()));
    }
  }
  return text;
}

std::string describe_keys(const DeckKeys& keys) {
  std::string text;
  for (const DeckSection& section : keys.sections()) {
    text += fmt::format("{}[{}]  {}\n", text.empty() ? "" : "\n", section.name,
                        section.meaning);
    for (const DeckEntry& entry : keys.entries()) {
      if (entry.section() != section.name) continue;
      text += fmt::format("  {:<18} {:<26} {}\n", entry.name_in_section(),
                          default_text(entry), allowed_text(entry));
      text += fmt::format("  {:<18} {} (restart: {})\n", "", meaning_text(entry),
                          restart_word(entry.key.restart));
    }
  }
  return text;
}

std::string describe_keys_markdown(const DeckKeys& keys) {
  std::string text;
  for (const DeckSection& section : keys.sections()) {
    text += fmt::format("{}## [{}]\n\n{}\n\n", text.empty() ? "" : "\n", section.name,
                        section.meaning);
    text += "| key | default | allowed | meaning | restart |\n|---|---|---|---|---|\n";
    for (const DeckEntry& entry : keys.entries()) {
      if (entry.section() != section.name) continue;
      text += fmt::format("| `{}` | {} | {} | {} | {} |\n", entry.name_in_section(),
                          cell(default_text(entry)), cell(allowed_text(entry)),
                          cell(meaning_text(entry)), restart_word(entry.key.restart));
    }
  }
  return text;
}

}  // namespace pleat::io
