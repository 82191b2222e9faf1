// SPDX-License-Identifier: Apache-2.0
#include "pleat/train/deck_changes.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>

#include <fmt/ranges.h>

#include "pleat/base/error.hpp"
#include "pleat/io/deck.hpp"
#include "pleat/train/deck_keys.hpp"

namespace pleat::train {
namespace {

using io::DeckEntry;
using io::DeckValue;
using io::DeckValues;
using io::Restart;

/// Nothing where a deck lacks the key and its default follows from other keys.
std::optional<DeckValue> value_of(const DeckEntry& entry, const DeckValues& given) {
  const auto found = given.find(entry.key.name);
  if (found != given.end()) return found->second;
  if (entry.key.required || !entry.key.fallback.empty()) return std::nullopt;
  return entry.default_value;
}

/// The names of files without their folders; nothing for a value that is no path.
std::vector<std::string> file_names(const DeckValue& value) {
  std::vector<std::string> paths;
  if (const auto* one = std::get_if<std::string>(&value)) paths = {*one};
  if (const auto* many = std::get_if<std::vector<std::string>>(&value)) paths = *many;
  for (std::string& path : paths) path = std::filesystem::path(path).filename().string();
  return paths;
}

bool only_moved(const DeckEntry& entry, const DeckValue& before, const DeckValue& now) {
  return entry.key.path && before.index() == now.index() &&
         file_names(before) == file_names(now);
}

bool is_zero(const DeckValue& value) {
  const auto* number = std::get_if<double>(&value);
  return number != nullptr && *number == 0.0;
}

Restart restart_of(const DeckEntry& entry, const DeckValue& before, const DeckValue& now) {
  const Restart declared = entry.key.restart;
  if (entry.key.zero_is_another_model && is_zero(before) != is_zero(now))
    return Restart::kRefused;
  if (!only_moved(entry, before, now)) return declared;
  return declared == Restart::kRefused ? Restart::kWarns : Restart::kFree;
}

std::string change_text(const DeckChange& change) {
  return fmt::format("{} was {}, is {}", change.key, change.before, change.now);
}

/// "model.hidden=32": for the command line of a shell.
std::string override_text(const DeckChange& change) {
  const std::string text = change.key + "=" + change.before;
  if (text.find_first_of("\"[] ;$\\*?~&|()<>`!#") == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

[[noreturn]] void refuse(const std::string& checkpoint,
                         const std::vector<DeckChange>& changes) {
  std::string table;
  std::vector<std::string> back;
  for (const DeckChange& change : changes) {
    table += fmt::format("  {:<8} {}\n", restart_word(change.restart), change_text(change));
    if (change.restart == Restart::kRefused) back.push_back(override_text(change));
  }
  PLEAT_FAIL(InputError, "PL0732",
             "this deck cannot continue '{}'; what differs from the deck it was written "
             "with, of which {} would make it another run:\n{}"
             "HINT: to go on, set back what is refused: {}\n"
             "To begin a new run, give it a folder of its own (run.output), or set "
             "checkpoint.resume=none: that keeps the earlier results aside.",
             checkpoint, back.size() == 1 ? "one" : fmt::format("{}", back.size()), table,
             fmt::join(back, " "));
}

}  // namespace

std::vector<DeckChange> deck_changes(const std::string& before, const std::string& now) {
  if (before.empty() || now.empty()) return {};
  DeckFields fields;
  const io::DeckKeys keys = declare_deck_keys(fields);
  const DeckValues old_values = io::read_deck_values(before, "deck of the checkpoint", keys);
  const DeckValues new_values = io::read_deck_values(now, "resolved deck", keys);
  std::vector<DeckChange> changes;
  for (const DeckEntry& entry : keys.entries()) {
    const auto was = value_of(entry, old_values);
    const auto is = value_of(entry, new_values);
    if (!was || !is || *was == *is) continue;
    changes.push_back({.key = entry.key.name,
                       .before = io::deck_text(*was),
                       .now = io::deck_text(*is),
                       .restart = restart_of(entry, *was, *is)});
  }
  return changes;
}

void require_continuable(const std::string& checkpoint,
                         const std::vector<DeckChange>& changes) {
  const auto refused = [](const DeckChange& c) { return c.restart == Restart::kRefused; };
  if (std::any_of(changes.begin(), changes.end(), refused)) refuse(checkpoint, changes);
}

void require_continuable(const std::string& checkpoint, const std::vector<DeckChange>& changes,
                         Log& log) {
  require_continuable(checkpoint, changes);
  std::vector<std::string> free;
  for (const DeckChange& change : changes) {
    if (change.restart == Restart::kFree) free.push_back(change_text(change));
  }
  if (!free.empty()) log.info("changed since the checkpoint: {}", fmt::join(free, "; "));
  for (const DeckChange& change : changes) {
    if (change.restart != Restart::kWarns) continue;
    log.warn("{} since the checkpoint: the run goes on, but is no longer the one that was begun",
             change_text(change));
  }
}

void warn_of_changed_data(const std::string& before, const std::string& now, Log& log) {
  if (before.empty() || now.empty() || before == now) return;
  std::istringstream old_sources(before);
  std::istringstream new_sources(now);
  std::string was;
  std::string is;
  int number = 0;
  do {
    ++number;
    if (!std::getline(old_sources, was)) was = "not there";
    if (!std::getline(new_sources, is)) is = "not there";
  } while (was == is && (old_sources || new_sources));
  log.warn("the content of data.path changed since the checkpoint: source {} was {}; is {}: the "
           "run goes on, but is no longer the one that was begun",
           number, was, is);
}

}  // namespace pleat::train
