// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief What a deck may say, and every complaint with its place and text.
#include <gmock/gmock.h>

#include "deck/deck_test.hpp"
#include "deck/example_keys.hpp"

namespace pleat::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class DeckTest : public ScratchFolder {
 protected:
  /// Reads a deck into example_.
  io::Deck read(const std::string& text) {
    const std::string path = write("try.toml", text);
    const io::DeckKeys keys = example_.keys();
    const io::Deck deck(path, {}, keys);
    deck.store(keys);
    return deck;
  }
  std::string complaint_about(const std::string& text) {
    return complaint([&] { read(text); });
  }

  Example example_;
};

TEST_F(DeckTest, FillsFieldsOfEveryType) {
  read(R"(
[run]
count = 7
seed = 9007199254740993
label = "a \"quoted\" label"
flag = true
[form]
rate = 2            # an integer stands for a number
share = 0.25
colour = "green"
pattern = "dots"
steps = [3, 1]
weights = [1, 0.5]
paths = ["a", "b c"]
group.inner = 4e-1
)");
  EXPECT_EQ(example_.count, 7);
  EXPECT_EQ(example_.seed, 9007199254740993u);
  EXPECT_EQ(example_.label, "a \"quoted\" label");
  EXPECT_TRUE(example_.flag);
  EXPECT_EQ(example_.rate, 2.0);
  EXPECT_EQ(example_.share, 0.25);
  EXPECT_EQ(example_.colour, Colour::kGreen);
  EXPECT_EQ(example_.pattern, "dots");
  EXPECT_THAT(example_.steps, testing::ElementsAre(3, 1));
  EXPECT_THAT(example_.weights, testing::ElementsAre(1.0, 0.5));
  EXPECT_THAT(example_.paths, testing::ElementsAre("a", "b c"));
  EXPECT_EQ(example_.inner, 0.4);
}

TEST_F(DeckTest, KeepsDefaultsOfAbsentKeys) {
  const io::Deck deck = read("[run]\ncount = 1\n");
  EXPECT_EQ(example_.rate, 0.5);
  EXPECT_EQ(example_.label, "none");
  EXPECT_TRUE(deck.given("run.count"));
  EXPECT_FALSE(deck.given("form.rate"));
  EXPECT_EQ(deck.where("run.count"), deck.path() + ":2");
  EXPECT_EQ(deck.where("form.rate"), deck.path());
}

TEST_F(DeckTest, AGroupHasThreeSpellings) {
  for (const char* text : {"[form]\ngroup.inner = 2", "[form.group]\ninner = 2",
                           "[form]\ngroup = {inner = 2}"}) {
    example_ = {};
    read(std::string("[run]\ncount = 1\n") + text);
    EXPECT_EQ(example_.inner, 2.0) << text;
  }
}

TEST_F(DeckTest, ASingleValueIsAListOfOne) {
  read("[run]\ncount = 1\n[form]\npaths = \"a\"\nsteps = 4\nweights = 1.5\n");
  EXPECT_THAT(example_.paths, testing::ElementsAre("a"));
  EXPECT_THAT(example_.steps, testing::ElementsAre(4));
  EXPECT_THAT(example_.weights, testing::ElementsAre(1.5));
}

TEST_F(DeckTest, NegativeZeroIsZero) {
  read("[run]\ncount = 1\n[form]\nshare = -0.0\n");
  EXPECT_FALSE(std::signbit(example_.share));
}

TEST_F(DeckTest, MissingFileAndFolder) {
  const io::DeckKeys keys = example_.keys();
  EXPECT_THAT(complaint([&] { io::Deck((folder_ / "no.toml").string(), {}, keys); }),
              AllOf(StartsWith("PL0201: there is no deck '"), HasSubstr("no.toml")));
  EXPECT_THAT(complaint([&] { io::Deck(folder_.string(), {}, keys); }),
              AllOf(StartsWith("PL0201"), HasSubstr("is a folder")));
  const std::string large = write("large.toml", std::string(2 << 20, '\n'));
  EXPECT_THAT(complaint([&] { io::Deck(large, {}, keys); }),
              AllOf(StartsWith("PL0201"), HasSubstr("not a deck")));
}

TEST_F(DeckTest, BrokenToml) {
  EXPECT_THAT(complaint_about("[run]\ncount = \n"),
              AllOf(StartsWith("PL0202: "), HasSubstr("try.toml:2: not valid TOML")));
  EXPECT_THAT(complaint_about("[run]\n\nlabel = \"\xff\"\n"),
              AllOf(StartsWith("PL0202: "), HasSubstr("try.toml:3: ")));
  EXPECT_THAT(complaint_about("[run]\ncount = 99999999999999999999\n"),
              AllOf(StartsWith("PL0202: "), HasSubstr("try.toml:2: ")));
  EXPECT_THAT(complaint_about(std::string("[run]\n\0", 7)), StartsWith("PL0202"));
}

TEST_F(DeckTest, DeepNestingIsRefused) {
  const auto repeat = [](const std::string& text, int times) {
    std::string result;
    for (int i = 0; i < times; ++i) result += text;
    return result;
  };
  EXPECT_THAT(complaint_about("x = " + repeat("[", 100000)), StartsWith("PL0202"));
  EXPECT_THAT(complaint_about("x = " + repeat("{a=", 100000)), StartsWith("PL0202"));
  EXPECT_THAT(complaint_about(repeat("a.", 300000) + "b = 1"), StartsWith("PL0202"));
  EXPECT_THAT(complaint_about("[" + repeat("a.", 300000) + "b]"), StartsWith("PL0202"));
  const std::string link = repeat("a.", 40) + "a";
  EXPECT_THAT(
      complaint_about("x = " + repeat("{" + link + "=", 200) + "1" + repeat("}", 200)),
      AllOf(StartsWith("PL0202"), HasSubstr("nested too deeply")));
}

TEST_F(DeckTest, UnknownKeyNamesTheNearest) {
  EXPECT_THAT(
      complaint_about("[run]\ncount = 1\n\nlable = \"x\"\n"),
      AllOf(StartsWith("PL0203: "), HasSubstr("try.toml:4: unknown key 'run.lable'"),
            HasSubstr("HINT: did you mean 'run.label'?")));
  EXPECT_THAT(complaint_about("[form.group]\niner = 1\n"),
              AllOf(HasSubstr("try.toml:2: unknown key 'form.group.iner'"),
                    HasSubstr("did you mean 'form.group.inner'?")));
  EXPECT_THAT(complaint_about("[run]\nsomething_else_entirely = 1\n"),
              HasSubstr("HINT: the keys of [run] are count, seed, label, flag."));
}

TEST_F(DeckTest, AKeyOfAnotherSectionIsFound) {
  EXPECT_THAT(complaint_about("[run]\nweights = [1]\n"),
              AllOf(HasSubstr("unknown key 'run.weights'"), HasSubstr("'form.weights'")));
  EXPECT_THAT(complaint_about("inner = 1\n"),
              AllOf(HasSubstr("try.toml:1: key 'inner' stands in no section"),
                    HasSubstr("did you mean 'form.group.inner'?")));
}

TEST_F(DeckTest, UnknownSection) {
  EXPECT_THAT(
      complaint_about("[run]\ncount = 1\n[from]\nrate = 1\n"),
      AllOf(StartsWith("PL0203: "), HasSubstr("try.toml:3: unknown section [from]"),
            HasSubstr("did you mean [form]?")));
  EXPECT_THAT(complaint_about("[zzzzzzzzzz]\nrate = 1\n"),
              HasSubstr("the sections are run, form."));
}

TEST_F(DeckTest, DuplicateKeyAndSection) {
  EXPECT_THAT(
      complaint_about("[run]\ncount = 1\ncount = 2\n"),
      AllOf(StartsWith("PL0204: "), HasSubstr("try.toml:3: run.count: given a second")));
  EXPECT_THAT(
      complaint_about("[run]\ncount = 1\n[run]\nseed = 2\n"),
      AllOf(StartsWith("PL0204: "), HasSubstr("try.toml:3: run: given a second")));
  EXPECT_THAT(complaint_about("[form]\ngroup.inner = 1\n[form.group]\ninner = 2\n"),
              AllOf(StartsWith("PL0204: "), HasSubstr("form.group: given a second")));
}

TEST_F(DeckTest, WrongTypes) {
  const auto wrong = [&](const std::string& line, const std::string& text) {
    EXPECT_THAT(complaint_about("[form]\n[run]\n" + line),
                AllOf(StartsWith("PL0205: "), HasSubstr("try.toml:3: "), HasSubstr(text)))
        << line;
  };
  wrong("count = 1.5", "run.count: found 1.5, expected an integer, 1 to 100");
  wrong("count = 1e1", "found 10.0, expected an integer, 1 to 100\nHINT: write 10.");
  wrong("count = \"12\"",
        "found the text \"12\", expected an integer, 1 to 100\nHINT: write "
        "it without quotes.");
  wrong("flag = \"true\"", "expected true or false\nHINT: write it without quotes.");
  // Without quotes it would be no better.
  EXPECT_THAT(complaint_about("[form]\n[run]\ncount = \"many\""),
              AllOf(StartsWith("PL0205: "), Not(HasSubstr("HINT"))));
  wrong("count = true", "found true");
  wrong("count = [1]", "found a list");
  wrong("count = {a = 1}", "found a table of keys");
  wrong("count = 1979-05-27", "found a date or time");
  wrong("flag = 1", "run.flag: found 1, expected true or false");
  wrong("label = 3", "run.label: found 3, expected a text in quotes");
  EXPECT_THAT(
      complaint_about("[form]\nsteps = [1, 2.0]"),
      HasSubstr("form.steps: found 2.0, expected a list of integers, at least 1"));
  EXPECT_THAT(complaint_about("[form]\npaths = [1]"), HasSubstr("PL0205"));
  EXPECT_THAT(complaint_about("[form]\nweights = [[1]]"), HasSubstr("found a list"));
}

TEST_F(DeckTest, ValuesInThePlaceOfGroupsAndSections) {
  EXPECT_THAT(
      complaint_about("[form]\ngroup = 0.1\n"),
      AllOf(StartsWith("PL0205: "), HasSubstr("try.toml:2: form.group: found a value"),
            HasSubstr("write form.group.inner = ...")));
  EXPECT_THAT(complaint_about("run = 3\n"),
              HasSubstr("run: found a value, expected a group"));
  EXPECT_THAT(complaint_about("[[run]]\ncount = 3\n"), HasSubstr("PL0205"));
}

TEST_F(DeckTest, OutOfRange) {
  const auto outside = [&](const std::string& line, const std::string& text) {
    EXPECT_THAT(complaint_about("[run]\ncount = 1\n[form]\n" + line),
                AllOf(StartsWith("PL0206: "), HasSubstr("try.toml:4: "), HasSubstr(text)))
        << line;
  };
  outside("rate = 0", "form.rate: found 0, expected a number, above 0");
  outside("rate = nan", "found nan, expected a number, above 0");
  outside("rate = inf", "found inf, expected a number, above 0");
  outside("rate = -inf", "found -inf");
  outside("share = 1.0", "found 1.0, expected a number, at least 0 and below 1");
  outside("steps = [1, 0]",
          "form.steps: found 0, expected a list of integers, at least 1");
  outside("weights = [nan]", "form.weights: found nan");
  EXPECT_THAT(complaint_about("[run]\ncount = 0\n"),
              HasSubstr("found 0, expected an integer, 1 "
                        "to 100"));
  EXPECT_THAT(complaint_about("[run]\nlabel = \"a\\u0000b\"\n"),
              AllOf(StartsWith("PL0206: "), HasSubstr("a\\x00b"),
                    HasSubstr("control characters")));
}

TEST_F(DeckTest, NotAnAllowedValue) {
  EXPECT_THAT(
      complaint_about("[form]\ncolour = \"gren\"\n"),
      AllOf(StartsWith("PL0207: "),
            HasSubstr("try.toml:2: form.colour: found the text \"gren\", expected one of "
                      "\"red\", \"green\""),
            HasSubstr("HINT: did you mean \"green\"?")));
  EXPECT_THAT(complaint_about("[form]\ncolour = \"\"\n"), StartsWith("PL0207: "));
  EXPECT_THAT(complaint_about("[form]\npattern = \"zigzag\"\n"),
              AllOf(StartsWith("PL0207: "), Not(HasSubstr("HINT"))));
  // An empty text is the default of pattern, so it may be written out.
  read("[run]\ncount = 1\n[form]\npattern = \"\"\n");
}

TEST_F(DeckTest, MissingRequiredKey) {
  EXPECT_THAT(
      complaint_about("[form]\nrate = 1\n"),
      AllOf(StartsWith("PL0208: "),
            HasSubstr("try.toml: run.count: missing, expected an integer, 1 to 100"),
            HasSubstr("how many")));
  EXPECT_THAT(complaint_about(""), StartsWith("PL0208: "));
}

TEST_F(DeckTest, TheFirstMistakeOfTheFileIsNamed) {
  EXPECT_THAT(complaint_about("[run]\nzzz = 1\ncount = \"x\"\n"),
              HasSubstr("try.toml:2: "));
  EXPECT_THAT(complaint_about("[run]\ncount = \"x\"\nzzz = 1\n"),
              HasSubstr("try.toml:2: "));
}

TEST_F(DeckTest, LongAndStrangeValuesAreShortened) {
  const std::string message =
      complaint_about("[run]\ncount = \"" + std::string(5000, 'x') + "\\u001b[31m\"\n");
  EXPECT_LT(message.size(), 400u);
  EXPECT_THAT(message, Not(HasSubstr("\x1b")));
  EXPECT_LT(complaint_about("[run]\n" + std::string(100000, 'k') + " = 1\n").size(),
            400u);
}

TEST_F(DeckTest, FilesAreSoughtBesideTheDeckFirst) {
  const std::string beside = write("sub/data.txt", "x");
  write("sub/tokens.bin", "x");
  const std::string path = write("sub/try.toml", "[run]\ncount = 1\n");
  const io::DeckKeys keys = example_.keys();
  const io::Deck deck(path, {}, keys);
  EXPECT_EQ(deck.find_path("data.txt"), beside);
  EXPECT_EQ(deck.find_path("../sub/data.txt"), beside);
  // A Megatron data set is named without extension.
  EXPECT_EQ(deck.find_path("tokens"), (folder_ / "sub/tokens").string());
  EXPECT_EQ(deck.find_path("absent.txt"), "absent.txt");
  EXPECT_EQ(deck.find_path("/a/b"), "/a/b");
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  write("only_here.txt", "x");
  EXPECT_EQ(deck.find_path("only_here.txt"), (folder_ / "only_here.txt").string());
  std::filesystem::current_path(here);
}

}  // namespace
}  // namespace pleat::test
