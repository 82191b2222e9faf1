// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Tells what was probably meant by a name that is not declared.
#include <fmt/ranges.h>

#include "deck_check.hpp"
#include "pleat/base/error.hpp"
#include "pleat/base/spelling.hpp"

namespace pleat::io {
namespace {

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongestWord = 64;
  return word.size() > kLongestWord ? std::string() : nearest_spelling(word, candidates);
}

std::vector<std::string> section_names(const DeckKeys& keys) {
  std::vector<std::string> names;
  for (const DeckSection& section : keys.sections()) names.push_back(section.name);
  return names;
}

/// Full names of keys that carry this name in some section.
std::vector<std::string> homonyms(const DeckKeys& keys, const std::string& name) {
  std::vector<std::string> found;
  for (const DeckEntry& entry : keys.entries()) {
    const std::string& full = entry.key.name;
    if (entry.name_in_section() == name || full.ends_with("." + name))
      found.push_back(full);
  }
  return found;
}

/// The best guesses for "section.key", where the section exists.
std::string guess(const DeckKeys& keys, const std::string& section,
                  const std::string& key) {
  std::vector<std::string> guesses;
  const std::string near = nearest(key, keys.names_in(section));
  if (!near.empty()) guesses.push_back(section + "." + near);
  for (const std::string& other : homonyms(keys, key)) guesses.push_back(other);
  if (!guesses.empty())
    return fmt::format("did you mean '{}'?", fmt::join(guesses, "' or '"));
  return fmt::format("the keys of [{}] are {}.", section,
                     fmt::join(keys.names_in(section), ", "));
}

}  // namespace

void fail_unknown(const DeckKeys& keys, const std::string& name, bool is_table,
                  const std::string& where) {
  const auto dot = name.find('.');
  const std::string section = name.substr(0, dot);
  if (dot != std::string::npos) {
    PLEAT_FAIL(InputError, "PL0203", "{}: unknown key '{}'\nHINT: {}", where,
               printable(name), guess(keys, section, name.substr(dot + 1)));
  }
  const std::string near = nearest(section, section_names(keys));
  const auto others = homonyms(keys, section);
  std::string hint =
      fmt::format("the sections are {}.", fmt::join(section_names(keys), ", "));
  if (!near.empty()) hint = fmt::format("did you mean [{}]?", near);
  if (!is_table && !others.empty())
    hint = fmt::format("did you mean '{}'?", fmt::join(others, "' or '"));
  PLEAT_FAIL(InputError, "PL0203", "{}: {}\nHINT: {}", where,
             is_table ? fmt::format("unknown section [{}]", printable(section))
                      : fmt::format("key '{}' stands in no section", printable(section)),
             hint);
}

}  // namespace pleat::io
