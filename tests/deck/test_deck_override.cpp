// SPDX-License-Identifier: Apache-2.0
/// \file
/// \brief "section.key=value" on the command line.
#include <gmock/gmock.h>

#include "deck/deck_test.hpp"
#include "deck/example_keys.hpp"

namespace pleat::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class OverrideTest : public ScratchFolder {
 protected:
  io::Deck read(const std::vector<std::string>& overrides) {
    const std::string path = write("try.toml", "[run]\ncount = 1\nlabel = \"deck\"\n");
    const io::DeckKeys keys = example_.keys();
    const io::Deck deck(path, overrides, keys);
    deck.store(keys);
    return deck;
  }
  std::string complaint_about(const std::string& text) {
    return complaint([&] { read({text}); });
  }

  Example example_;
};

TEST_F(OverrideTest, ReplacesTheDeck) {
  const io::Deck deck =
      read({"run.count=5", "form.group.inner=0.01", "form.rate = 2", "run.flag=true",
            "form.steps=[1, 2]", "form.paths=[\"a\", 'b']", "form.colour=green"});
  EXPECT_EQ(example_.count, 5);
  EXPECT_EQ(example_.inner, 0.01);
  EXPECT_EQ(example_.rate, 2.0);
  EXPECT_TRUE(example_.flag);
  EXPECT_THAT(example_.steps, testing::ElementsAre(1, 2));
  EXPECT_THAT(example_.paths, testing::ElementsAre("a", "b"));
  EXPECT_EQ(example_.colour, Colour::kGreen);
  EXPECT_EQ(example_.label, "deck");
  EXPECT_EQ(deck.where("run.count"), "override 'run.count=5'");
}

TEST_F(OverrideTest, BareWordsAreTexts) {
  const std::pair<const char*, const char*> cases[] = {
      {"run.label=trial", "trial"},
      {"run.label=\"trial\"", "trial"},
      {"run.label=a b=c", "a b=c"},
      {"run.label=", ""},
      {"run.label=2024", "2024"},
      {"run.label=true", "true"},
      {"run.label=1.50", "1.50"},
      {"run.label=data/x.txt", "data/x.txt"},
      {"run.label=na#me", "na#me"},
      {"run.label=\xc3\xbc", "\xc3\xbc"},
      {"run.label=1979-05-27", "1979-05-27"}};
  for (const auto& [text, label] : cases) {
    read({text});
    EXPECT_EQ(example_.label, label) << text;
  }
}

TEST_F(OverrideTest, TheLastOneCounts) {
  read({"run.count=5", "run.count=6"});
  EXPECT_EQ(example_.count, 6);
}

TEST_F(OverrideTest, ComplaintsNameTheOverride) {
  EXPECT_THAT(complaint_about("run.cuont=5"),
              AllOf(StartsWith("PL0203: override 'run.cuont=5': unknown key 'run.cuont'"),
                    HasSubstr("did you mean 'run.count'?")));
  EXPECT_THAT(complaint_about("count=5"),
              AllOf(StartsWith("PL0203: "), HasSubstr("did you mean 'run.count'?")));
  EXPECT_THAT(complaint_about("run.count=five"),
              StartsWith("PL0205: override 'run.count=five': run.count: found the text "
                         "\"five\", expected an integer, 1 to 100"));
  // Nobody has written quotes that could go.
  for (const char* text : {"run.count=five", "run.count=99999999999999999999", "form.rate=1e400"})
    EXPECT_THAT(complaint_about(text), AllOf(StartsWith("PL0205: "), Not(HasSubstr("HINT"))));
  EXPECT_THAT(complaint_about("run.count=\"5\""), HasSubstr("HINT: write it without quotes."));
  EXPECT_THAT(complaint_about("run.count=0"),
              StartsWith("PL0206: override 'run.count=0'"));
  EXPECT_THAT(complaint_about("form.rate=nan"), StartsWith("PL0206: "));
  EXPECT_THAT(complaint_about("form.colour=blue"), StartsWith("PL0207: "));
  EXPECT_THAT(complaint_about("form.group=1"), StartsWith("PL0205: "));
}

TEST_F(OverrideTest, Malformed) {
  for (const char* text :
       {"run.count", "", "=", "=3", "run count=3", "run.label=\"open", "form.steps=[1",
        "form.group={", "run.label=\xff", "run.label=a\nb", "a.b.c.d.e.f.g.h.i.j=1",
        "run.count=1\n[form]", "'run'.count=1"}) {
    EXPECT_THAT(complaint_about(text), StartsWith("PL0210: override ")) << text;
  }
  for (const char* text : {".=1", "run.=1", ".count=1", "run..count=1", "run=1"}) {
    EXPECT_THAT(complaint_about(text), StartsWith("PL020")) << text;
  }
}

}  // namespace
}  // namespace pleat::test
