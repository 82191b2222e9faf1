// SPDX-License-Identifier: Apache-2.0
#include "pleat/io/deck_keys.hpp"

#include <algorithm>
#include <cmath>

#include "pleat/base/error.hpp"

namespace pleat::io {
namespace {

/// Bounds are whole numbers or short fractions; shown without ".0".
std::string bound(double value) {
  if (std::floor(value) == value && std::abs(value) < 1.0e15)
    return fmt::format("{}", static_cast<std::int64_t>(value));
  return fmt::format("{}", value);
}

}  // namespace

const char* restart_word(Restart restart) {
  switch (restart) {
    case Restart::kFree:
      return "free";
    case Restart::kWarns:
      return "warns";
    case Restart::kRefused:
      return "refused";
  }
  return "";
}

bool DeckRange::contains(double value) const {
  const bool above = low_open ? value > low : value >= low;
  const bool below = high_open ? value < high : value <= high;
  return above && below;
}

std::string DeckRange::text() const {
  const bool has_low = std::isfinite(low);
  const bool has_high = std::isfinite(high);
  const char* above = low_open ? "above" : "at least";
  const char* below = high_open ? "below" : "at most";
  if (has_low && has_high && !low_open && !high_open)
    return fmt::format("{} to {}", bound(low), bound(high));
  if (has_low && has_high)
    return fmt::format("{} {} and {} {}", above, bound(low), below, bound(high));
  if (has_low) return fmt::format("{} {}", above, bound(low));
  if (has_high) return fmt::format("{} {}", below, bound(high));
  return "";
}

void DeckKeys::add_section(std::string name, std::string meaning) {
  sections_.push_back({std::move(name), std::move(meaning)});
}

void DeckKeys::add(std::uint64_t& field, DeckKey key) {
  DeckEntry entry;
  entry.key = std::move(key);
  entry.store = [&field](const DeckValue& value) {
    field = static_cast<std::uint64_t>(std::get<std::int64_t>(value));
  };
  entry.current = [&field] { return DeckValue(static_cast<std::int64_t>(field)); };
  add_entry(std::move(entry));
}

void DeckKeys::add_text_choice(std::string& field, std::vector<std::string> choices,
                               DeckKey key) {
  bind(field, std::move(key));
  entries_.back().choices = std::move(choices);
}

void DeckKeys::add_entry(DeckEntry entry) {
  PLEAT_ASSERT(has_section(entry.section()), "key '{}' is in no section", entry.key.name);
  PLEAT_ASSERT(find(entry.key.name) == nullptr, "key '{}' is declared twice",
               entry.key.name);
  entry.default_value = entry.current();
  entry.type = static_cast<DeckType>(entry.default_value.index());
  entries_.push_back(std::move(entry));
}

const DeckEntry* DeckKeys::find(std::string_view name) const {
  for (const DeckEntry& entry : entries_) {
    if (entry.key.name == name) return &entry;
  }
  return nullptr;
}

bool DeckKeys::has_section(std::string_view name) const {
  return std::any_of(sections_.begin(), sections_.end(),
                     [&](const DeckSection& section) { return section.name == name; });
}

bool DeckKeys::is_group(std::string_view name) const {
  const std::string prefix = std::string(name) + ".";
  return std::any_of(entries_.begin(), entries_.end(), [&](const DeckEntry& entry) {
    return entry.key.name.starts_with(prefix);
  });
}

std::vector<std::string> DeckKeys::names_in(std::string_view section) const {
  std::vector<std::string> names;
  for (const DeckEntry& entry : entries_) {
    if (entry.section() == section) names.push_back(entry.name_in_section());
  }
  return names;
}

}  // namespace pleat::io
