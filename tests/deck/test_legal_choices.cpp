// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Whatever the program offers in place of an illegal mapping, it accepts.
#include <map>
#include <optional>

#include <gmock/gmock.h>

#include "deck/deck_test.hpp"
#include "deck/run_deck.hpp"
#include "pleat/base/random.hpp"
#include "pleat/train/grid_choice.hpp"

namespace pleat::test {
namespace {

using testing::HasSubstr;

/// Ranks and overrides of a deck.
struct Asked {
  std::vector<std::string> overrides;
  std::optional<std::int64_t> ranks;
};

std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + separator.size()) {
    end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
  }
  return parts;
}

/// "parallel.tensor = 2 with parallel.expert = 4" or "8 ranks" in place of what was
/// asked.
Asked with(Asked asked, const std::string& offer) {
  for (const std::string& value : split(offer, " with ")) {
    if (value.ends_with(" ranks")) {
      asked.ranks = std::stoll(value);
      continue;
    }
    const auto sides = split(value, " = ");
    EXPECT_EQ(sides.size(), 2U) << "no key and value: " << offer;
    const std::string key = sides.front() + "=";
    std::erase_if(asked.overrides,
                  [&](const std::string& given) { return given.starts_with(key); });
    asked.overrides.push_back(key + sides.back());
  }
  return asked;
}

/// What a message offers.
std::vector<std::string> offers_of(const std::string& message) {
  for (const std::string lead :
       {"HINT: the nearest legal choice is ", "HINT: the nearest legal choices are "}) {
    const std::size_t at = message.find(lead);
    if (at == std::string::npos) continue;
    const std::string offers = message.substr(at + lead.size());
    EXPECT_TRUE(offers.ends_with(".")) << message;
    return split(offers.substr(0, offers.size() - 1), ", or ");
  }
  return {};
}

class LegalChoices : public RunDeckTest {
 protected:
  /// The complaint about a deck; empty when it is accepted.
  std::string complaint_about(const std::string& deck, const Asked& asked) const {
    try {
      const auto config = train::load_run_config(deck, asked.overrides, asked.ranks);
      if (asked.ranks) train::grid_shape_of(config, *asked.ranks);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  /// \returns the identifier of what is wrong; empty when nothing is
  std::string check_offers(const std::string& deck, const Asked& asked) const {
    const std::string message = complaint_about(deck, asked);
    if (message.empty()) return "";
    const std::vector<std::string> offers = offers_of(message);
    EXPECT_FALSE(offers.empty()) << message;
    for (const std::string& offer : offers) {
      const std::string again = complaint_about(deck, with(asked, offer));
      EXPECT_EQ(again, "") << "offered: " << offer << "\nin: " << message;
    }
    return message.substr(0, 6);
  }
};

constexpr const char* kMixed = R"([run]
steps = 10
[model]
layers = 6
hidden = 64
heads = 12
kv_heads = 3
head_dim = 8
vocab = 250
ffn = 90
family = "qwen2_moe"
[moe]
dense_layers = [0]
experts = 6
ffn = 40
shared_ffn = 60
[batch]
sequence = 72
micro = 2
global = 12
[data]
format = "synthetic"
)";

/// One of the values, by a number of its own for each case and key.
template <class T>
const T& drawn(std::uint64_t number, const char* key, const std::vector<T>& values) {
  return values[CounterRandom(7, hash_name(key)).bits64(number) % values.size()];
}

Asked drawn_mapping(std::uint64_t number) {
  const auto draw = [&](const char* key, const std::vector<std::string>& values) {
    return std::string(key) + "=" + drawn(number, key, values);
  };
  Asked asked;
  asked.overrides = {
      draw("parallel.pipeline", {"1", "1", "2", "3", "4", "9"}),
      draw("parallel.context", {"1", "1", "2", "3", "5"}),
      draw("parallel.tensor", {"1", "1", "2", "3", "4", "5", "6", "12", "16"}),
      draw("parallel.expert", {"1", "1", "2", "3", "4", "6", "16"}),
      draw("parallel.expert_tensor", {"1", "1", "2", "3", "5"}),
      draw("batch.sequence", {"16", "48", "50", "72", "7"})};
  for (const std::string& other :
       {draw("parallel.schedule", {"", "", "\"interleaved\"", "\"1f1b\""}),
        draw("parallel.chunks", {"", "", "", "1", "2", "3"}),
        draw("parallel.layout", {"", "", "", "[2,4]", "[1,2,3]", "[5,2]", "[6]"})}) {
    if (!other.ends_with("=")) asked.overrides.push_back(other);
  }
  const auto ranks =
      drawn<std::int64_t>(number, "ranks", {0, 0, 1, 2, 4, 6, 7, 12, 24, 144, 1 << 20});
  if (ranks > 0) asked.ranks = ranks;
  return asked;
}

TEST_F(LegalChoices, AreAcceptedInPlaceOfWhatIsNot) {
  const std::string decks[] = {write("small.toml", kSmallDeck),
                               write("mixed.toml", kMixed)};
  std::map<std::string, int> seen;
  for (std::uint64_t number = 0; number < 1500 && !HasFailure(); ++number) {
    ++seen[check_offers(decks[number % 2], drawn_mapping(number))];
  }
  for (const char* id : {"PL0209", "PL0610", "PL0622", "PL0623", "PL0802"})
    EXPECT_GE(seen[id], 10) << id;
  EXPECT_GE(seen[""], 10) << "some are legal";
}

// One rule at a time, so that each offers something.
TEST_F(LegalChoices, OfEachRule) {
  const std::string deck = write("mixed.toml", kMixed);
  const std::pair<const char*, const char*> cases[] = {
      {"parallel.tensor=5",
       "model.heads = 12\nHINT: the nearest legal choices are parallel.tensor = 3, or "
       "parallel.tensor = 6."},
      {"parallel.tensor=4",
       "model.kv_heads = 3: each key/value head would have another number of copies\n"
       "HINT: the nearest legal choices are parallel.tensor = 3, or parallel.tensor = "
       "6."},
      {"parallel.expert=4", "parallel.expert = 3, or parallel.expert = 6."},
      {"parallel.expert=7", "HINT: the nearest legal choice is parallel.expert = 6."},
      {"parallel.expert_tensor=3",
       "parallel.expert_tensor = 2, or parallel.expert_tensor = 4."},
      {"parallel.context=5",
       "batch.sequence = 70, or batch.sequence = 80, or "
       "parallel.context = 4, or parallel.context = 6."},
      {"parallel.context=4 parallel.tensor=12",
       "HINT: the nearest legal choice is parallel.tensor = 6."},
      {"parallel.pipeline=8",
       "parallel.pipeline = 6, or parallel.layout = "
       "[1, 1, 1, 1, 1, 1, 0, 0]."},
      {"parallel.schedule=interleaved", "parallel.pipeline = 2."},
      {"parallel.schedule=interleaved parallel.pipeline=2 parallel.chunks=1",
       "parallel.chunks = 2, or parallel.schedule = \"1f1b\"."},
      {"parallel.chunks=2 parallel.pipeline=2",
       "parallel.chunks = 1, or parallel.schedule = \"interleaved\"."},
      {"parallel.layout=[3,3] parallel.pipeline=3",
       "parallel.layout = [], or parallel.layout = [2, 2, 2], or parallel.pipeline = 2."},
      {"parallel.layout=[3,4] parallel.pipeline=2",
       "parallel.layout = [], or parallel.layout = [3, 3]."}};
  for (const auto& [overrides, text] : cases) {
    const Asked asked{words(overrides), {}};
    EXPECT_THAT(complaint_about(deck, asked), HasSubstr(text));
    check_offers(deck, asked);
  }
}

// Ranks that are known limit what is offered, and several keys are offered together where
// no single one suffices.
TEST_F(LegalChoices, FillTheRanks) {
  const std::string deck = write("mixed.toml", kMixed);
  const Asked nine{words("parallel.tensor=9"), 9};
  EXPECT_THAT(complaint_about(deck, nine),
              HasSubstr("HINT: the nearest legal choice is parallel.tensor = 3."));
  const Asked both{words("parallel.tensor=5 parallel.expert=4"), {}};
  EXPECT_THAT(complaint_about(deck, both),
              HasSubstr("HINT: the nearest legal choice is parallel.tensor = 3 with "
                        "parallel.expert = 3."));
  const Asked five{words("parallel.tensor=3 parallel.expert=6"), 5};
  EXPECT_THAT(complaint_about(deck, five),
              HasSubstr("HINT: the nearest legal choice is 6 ranks."));
  // Two factors that do not divide five ranks, and a sequence that is no multiple.
  const Asked uncut{words("parallel.pipeline=2 parallel.tensor=3 batch.sequence=7"), 5};
  check_offers(deck, uncut);
}

}  // namespace
}  // namespace pleat::test
