// SPDX-License-Identifier: Apache-2.0
#pragma once

/// \file
/// \brief The declaration of deck keys. Each key is declared once, bound to the field
/// that it fills; parsing, checking, the resolved deck and the documentation follow from
/// that.

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace pleat::io {

/// \brief What a key can hold; a choice is a text.
using DeckValue =
    std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                 std::vector<double>, std::vector<std::string>>;

/// \brief Names the alternatives of DeckValue, in their order.
enum class DeckType { kBoolean, kInteger, kReal, kText, kIntegers, kReals, kTexts };

/// \brief What a run that continues from a checkpoint makes of a changed key.
enum class Restart {
  kFree,    ///< may change at any time
  kWarns,   ///< may change, but the run is no longer the one that was begun
  kRefused  ///< a different model or data order: a new run
};
/// \brief "free", "warns", "refused".
const char* restart_word(Restart restart);

/// \brief Which numbers a key accepts.
struct DeckRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;   ///< low itself is excluded
  bool high_open = false;  ///< high itself is excluded

  bool contains(double value) const;
  /// \brief "at least 1", "above 0", "0 to 1", ...; empty when everything is allowed.
  std::string text() const;
};

/// \brief The declaration of one key.
struct DeckKey {
  std::string name;     ///< "section.key", at most one group in between
  std::string meaning;  ///< one line
  std::string unit = {};
  bool required = false;
  /// How the default follows from other keys; empty: the default is the field's value.
  std::string fallback = {};
  DeckRange range = {};  ///< of a number, or of each number of a list
  Restart restart = Restart::kRefused;
  /// Names files: the same names in another folder weigh one class less on a restart, since
  /// they were probably moved.
  bool path = false;
  /// 0 is another model than any other number: from or to it a restart is refused.
  bool zero_is_another_model = false;
};

/// \brief A key together with the field that it fills.
struct DeckEntry {
  DeckKey key;
  DeckType type;
  std::vector<std::string> choices;  ///< allowed texts; empty: any
  DeckValue default_value;
  std::function<void(const DeckValue&)> store;
  std::function<DeckValue()> current;

  std::string section() const { return key.name.substr(0, key.name.find('.')); }
  /// \brief The name within the section: "aux_loss.coeff".
  std::string name_in_section() const { return key.name.substr(key.name.find('.') + 1); }
};

struct DeckSection {
  std::string name;
  std::string meaning;
};

/// \brief All sections and keys, in the order of their declaration. The bound fields must
/// outlive it.
class DeckKeys {
 public:
  void add_section(std::string name, std::string meaning);

  /// \brief Declares a key. The field's present value is the default.
  void add(bool& field, DeckKey key) { bind(field, std::move(key)); }
  void add(std::int64_t& field, DeckKey key) { bind(field, std::move(key)); }
  void add(std::uint64_t& field, DeckKey key);
  void add(double& field, DeckKey key) { bind(field, std::move(key)); }
  void add(std::string& field, DeckKey key) { bind(field, std::move(key)); }
  void add(std::vector<std::int64_t>& field, DeckKey key) { bind(field, std::move(key)); }
  void add(std::vector<double>& field, DeckKey key) { bind(field, std::move(key)); }
  void add(std::vector<std::string>& field, DeckKey key) { bind(field, std::move(key)); }

  /// \brief Declares a key with a name for each value of an enumeration.
  template <class Enum>
  void add_choice(Enum& field, std::vector<std::pair<std::string, Enum>> names,
                  DeckKey key);
  /// \brief Declares a text that must be one of the choices.
  void add_text_choice(std::string& field, std::vector<std::string> choices, DeckKey key);

  const std::vector<DeckSection>& sections() const { return sections_; }
  const std::vector<DeckEntry>& entries() const { return entries_; }
  /// \brief The entry of a full name; null when there is none.
  const DeckEntry* find(std::string_view name) const;
  bool has_section(std::string_view name) const;
  /// \brief True for "moe.aux_loss", which is no key but begins the names of some.
  bool is_group(std::string_view name) const;
  /// \brief The names of a section's keys, without the section.
  std::vector<std::string> names_in(std::string_view section) const;

 private:
  template <class T>
  void bind(T& field, DeckKey key);
  void add_entry(DeckEntry entry);

  std::vector<DeckSection> sections_;
  std::vector<DeckEntry> entries_;
};

template <class T>
void DeckKeys::bind(T& field, DeckKey key) {
  DeckEntry entry;
  entry.key = std::move(key);
  entry.store = [&field](const DeckValue& value) { field = std::get<T>(value); };
  entry.current = [&field] { return DeckValue(field); };
  add_entry(std::move(entry));
}

template <class Enum>
void DeckKeys::add_choice(Enum& field, std::vector<std::pair<std::string, Enum>> names,
                          DeckKey key) {
  DeckEntry entry;
  entry.key = std::move(key);
  for (const auto& [name, value] : names) entry.choices.push_back(name);
  entry.store = [&field, names](const DeckValue& given) {
    for (const auto& [name, value] : names) {
      if (name == std::get<std::string>(given)) field = value;
    }
  };
  entry.current = [&field, names] {
    for (const auto& [name, value] : names) {
      if (value == field) return DeckValue(name);
    }
    return DeckValue(std::string());
  };
  add_entry(std::move(entry));
}

}  // namespace pleat::io
