// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Broken decks and overrides: each one is either a deck or one readable
/// complaint.
#include <random>

#include <gmock/gmock.h>

#include "deck/deck_test.hpp"
#include "deck/run_deck.hpp"

namespace pleat::test {
namespace {

constexpr int kInputs = 6000;

class DeckFuzzTest : public RunDeckTest {
 protected:
  std::size_t below(std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random_);
  }

  /// Changes, removes, doubles or inserts something.
  void mutate(std::string& text) {
    static const std::vector<std::string> pieces = {"\n[",
                                                    "]",
                                                    "[[",
                                                    "{",
                                                    "}",
                                                    "=",
                                                    ".",
                                                    "\"",
                                                    "\"\"\"",
                                                    "'",
                                                    "\\",
                                                    "#",
                                                    "\n",
                                                    "\r",
                                                    ",",
                                                    "nan",
                                                    "inf",
                                                    "-0.0",
                                                    "1e999",
                                                    "9223372036854775807",
                                                    "-9223372036854775808",
                                                    "99999999999999999999",
                                                    "0x7fffffffffffffff",
                                                    "true",
                                                    "[1, [2]]",
                                                    "1979-05-27",
                                                    "\xff",
                                                    "\xc3\x28",
                                                    "\xef\xbb\xbf",
                                                    "\\u0000",
                                                    "\\ud800",
                                                    "[run]",
                                                    "[moe.aux_loss]",
                                                    "coeff = 1",
                                                    "steps = 3",
                                                    "a.b.c.d = 1",
                                                    "init = \"/\"",
                                                    "[model]\n",
                                                    "= = ="};
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = std::min(text.size() - at, below(24));
    switch (below(5)) {
      case 0:
        text.insert(at, pieces[below(pieces.size())]);
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      default:
        text.replace(at, length, pieces[below(pieces.size())]);
        break;
    }
  }

  /// One input; counts what came of it.
  void feed(const std::string& text, const std::vector<std::string>& overrides) {
    try {
      load(text, overrides);
      ++accepted_;
    } catch (const InputError& error) {
      ++refused_;
      const std::string message = error.what();
      EXPECT_THAT(message, testing::StartsWith("PL0"));
      EXPECT_LT(message.size(), 2000u);
      EXPECT_EQ(message.find('\x1b'), std::string::npos);
    }
  }

  std::mt19937_64 random_{20240711};
  int accepted_ = 0;
  int refused_ = 0;
};

TEST_F(DeckFuzzTest, MutatedDecks) {
  const std::string seeds[] = {
      kSmallDeck, read_text(std::string(PLEAT_SOURCE_DIR) + "/inputs/dense-and-moe.toml"),
      load(kSmallDeck).resolved_deck};
  for (int i = 0; i < kInputs; ++i) {
    std::string text = seeds[below(3)];
    for (std::size_t times = 1 + below(4); times > 0; --times) mutate(text);
    feed(text, {});
  }
  // Both outcomes are common, or the test would test little.
  EXPECT_GT(accepted_, kInputs / 50);
  EXPECT_GT(refused_, kInputs / 4);
}

TEST_F(DeckFuzzTest, RandomBytes) {
  for (int i = 0; i < kInputs / 6; ++i) {
    std::string text(below(200), '\0');
    for (char& c : text) c = static_cast<char>(below(256));
    feed(text, {});
  }
  EXPECT_EQ(accepted_, 0);
}

TEST_F(DeckFuzzTest, MutatedOverrides) {
  const std::string seeds[] = {"run.steps=12",
                               "moe.aux_loss.coeff=0.01",
                               "run.name=trial",
                               "output.gradients_at=[1, 2]",
                               "data.path=[\"a\", \"b\"]",
                               "moe={experts = 4}"};
  for (int i = 0; i < kInputs / 2; ++i) {
    std::string text = seeds[below(6)];
    for (std::size_t times = 1 + below(3); times > 0; --times) mutate(text);
    feed(kSmallDeck, {text});
  }
  EXPECT_GT(accepted_, kInputs / 100);
  EXPECT_GT(refused_, kInputs / 8);
}

}  // namespace
}  // namespace pleat::test
