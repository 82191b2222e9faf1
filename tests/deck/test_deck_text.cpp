// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief Written decks and the documentation of keys.
#include <gmock/gmock.h>

#include "deck/deck_test.hpp"
#include "deck/example_keys.hpp"

namespace pleat::test {
namespace {

using testing::HasSubstr;

class DeckTextTest : public ScratchFolder {};

TEST_F(DeckTextTest, WritesEveryKey) {
  Example example;
  example.label = "say \"a\\b\"";
  example.rate = 1.0e6;
  example.weights = {1.0, 0.1, 1e-300, 12345678901234567890.0};
  example.paths = {"a", "\xc3\xbc"};
  EXPECT_EQ(io::write_deck(example.keys()),
            "[run]\n"
            "count = 3\n"
            "seed = 1\n"
            "label = \"say \\\"a\\\\b\\\"\"\n"
            "flag = false\n"
            "\n"
            "[form]\n"
            "rate = 1000000.0\n"
            "share = 0.0\n"
            "colour = \"red\"\n"
            "pattern = \"\"\n"
            "steps = []\n"
            "weights = [1.0, 0.1, 1e-300, 1.2345678901234567e+19]\n"
            "paths = [\"a\", \"\xc3\xbc\"]\n"
            "group.inner = 0.25\n");
}

TEST_F(DeckTextTest, WhatIsWrittenReadsBackTheSame) {
  Example first;
  first.rate = 0.1 + 0.2;
  first.label = "\\";
  first.weights = {4.9406564584124654e-324, 1.7976931348623157e308, 3.0};
  first.colour = Colour::kGreen;
  const std::string text = io::write_deck(first.keys());
  Example second;
  const io::DeckKeys keys = second.keys();
  io::Deck(write("try.toml", text), {}, keys).store(keys);
  EXPECT_EQ(second.rate, first.rate);
  EXPECT_EQ(second.label, first.label);
  EXPECT_EQ(second.weights, first.weights);
  EXPECT_EQ(io::write_deck(keys), text);
}

TEST_F(DeckTextTest, TheTableNamesEverything) {
  Example example;
  const std::string text = io::describe_keys(example.keys());
  EXPECT_THAT(text, HasSubstr("[run]  The run."));
  EXPECT_THAT(text, HasSubstr("required"));
  EXPECT_THAT(text, HasSubstr("an integer, 1 to 100"));
  EXPECT_THAT(text, HasSubstr("how many [pieces]"));
  EXPECT_THAT(text, HasSubstr("a quarter"));
}

TEST_F(DeckTextTest, MarkdownEscapesItsSeparator) {
  Example example;
  EXPECT_THAT(
      io::describe_keys_markdown(example.keys()),
      HasSubstr("| `colour` | \"red\" | \"red\", \"green\" | a \\| colour | refused |"));
}

TEST_F(DeckTextTest, RangesInWords) {
  using io::DeckRange;
  EXPECT_EQ((DeckRange{}).text(), "");
  EXPECT_EQ((DeckRange{.low = 0}).text(), "at least 0");
  EXPECT_EQ((DeckRange{.low = 0, .low_open = true}).text(), "above 0");
  EXPECT_EQ((DeckRange{.high = 2.5}).text(), "at most 2.5");
  EXPECT_EQ((DeckRange{.low = 0, .high = 1}).text(), "0 to 1");
  EXPECT_EQ((DeckRange{.low = 0, .high = 1, .high_open = true}).text(),
            "at least 0 and below 1");
}

}  // namespace
}  // namespace pleat::test
